"""Looks at a stream of server-sent events while it passes by, without changing or framing it."""

import re
from typing import Final

#: How an engine says in the last event of a choice that it gave up. Inside text every quote is escaped, so a model
#: cannot write this.
_ABORT: Final = re.compile(rb'"finish_reason"\s*:\s*"abort"')
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")
#: How a complete stream ends. Inside text every line break and quote is escaped, so a model cannot write these either.
_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
_RESPONSE_END: Final = re.compile(
    rb"[\r\n]event: ?(?:response\.(?:completed|incomplete|failed)|error)[\r\n]"
    rb'|"type"\s*:\s*"response\.(?:completed|incomplete|failed)"'
)
#: A plain search for a part of each comes first, since it costs a tenth of the pattern, and this runs on every token.
_DONE_MARKERS: Final = (b"[DONE]",)
_RESPONSE_MARKERS: Final = (b"response.completed", b"response.incomplete", b"response.failed", b"error")
#: So many bytes of a pattern may stand before its marker, white space of any sensible length included.
_BEFORE: Final = 32
#: Bytes kept of what has passed: a pattern may be split over two chunks.
_KEPT: Final = 64


class StreamWatch:
    """Watches one stream for aborts and for a complete end."""

    def __init__(self, *, needs_done: bool) -> None:
        """``needs_done``: a complete stream has a ``[DONE]``; otherwise the event that ends a response."""
        self._end = _DONE if needs_done else _RESPONSE_END
        self._markers: tuple[bytes, ...] = _DONE_MARKERS if needs_done else _RESPONSE_MARKERS
        self._end_passed = False
        self._tail = b"\n"
        self.aborted = False
        """The engine gave the call up."""
        self.ended = False
        """The event that says so has passed completely; nothing after it may pass."""

    def passes(self, chunk: bytes) -> bytes:
        """The part of a chunk that may go to the client: all of it, unless the engine aborted the call. Then the event
        that says so is the last one."""
        offset = len(self._tail)
        window = self._tail + chunk
        self._tail = window[-_KEPT:]
        if not self._end_passed:
            for marker in self._markers:
                if (place := window.find(marker)) != -1 and self._end.search(window, max(0, place - _BEFORE)):
                    self._end_passed = True
                    break
        start = max(0, offset - 3)
        if not self.aborted:
            if b'"abort"' not in window or (found := _ABORT.search(window)) is None:
                return chunk
            self.aborted, start = True, found.end()
        end = _EVENT_END.search(window, start)
        if end is None:
            return chunk
        self.ended = True
        return window[offset : end.end()]

    @property
    def complete(self) -> bool:
        """Whether the stream may end here."""
        return not self.aborted and self._end_passed
