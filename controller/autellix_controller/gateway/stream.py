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
# A plain search for a part of each comes first: it costs a tenth of the pattern, on every token.
#: Bytes kept of what has passed: a pattern may be split over two chunks.
_KEPT: Final = 64


class StreamWatch:
    """Watches one stream for aborts and for a complete end."""

    def __init__(self, *, needs_done: bool) -> None:
        """``needs_done``: a complete stream has a ``[DONE]``; otherwise the event that ends a response."""
        self._end = _DONE if needs_done else _RESPONSE_END
        self._markers: tuple[bytes, ...] = (b"[DONE]",) if needs_done else (b"response.", b"error")
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
        if not self._end_passed and any(marker in window for marker in self._markers):
            self._end_passed = self._end.search(window) is not None
        start = max(0, offset - 3)
        if not self.aborted:
            found = _ABORT.search(window) if b'"abort"' in window else None
            if found is None:
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
