"""Looks at a stream of server-sent events while it passes by, without changing or framing it."""

import re
from typing import Final

from autellix_controller.gateway.answers import says_cancelled

#: How an engine says in the last event of a choice that it gave up. Inside text every quote is escaped, so a model
#: cannot write this.
_ABORT: Final = re.compile(rb'"finish_reason"\s*:\s*"abort"')
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")
#: How an event begins that says that the engine failed: ``data: {"error": ...}`` of chat and completions, which vLLM
#: sends within a stream of status 200, and ``event: error`` of the Responses API. Inside text every line break and
#: quote is escaped, so neither a model nor a client whose text is repeated can write these.
_ERROR: Final = re.compile(rb'\n(?:data: \{"error"\s*:\s*[{"]|event: ?error[\r\n]|data: ?\{\s*"type"\s*:\s*"error")')
#: How a complete stream ends; the same holds.
_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
_RESPONSE_END: Final = re.compile(
    rb"[\r\n]event: ?response\.(?:completed|incomplete|failed)[\r\n]"
    rb'|"type"\s*:\s*"response\.(?:completed|incomplete|failed)"'
)
#: A plain search for a part of each comes first, since it costs a tenth of the pattern, and this runs on every token.
#: Long ones are found quicker: the search may skip as far as they are long.
_ERROR_MARKER: Final = b'\ndata: {"error"'
_RESPONSE_ERROR_MARKER: Final = b"error"
_DONE_MARKERS: Final = (b"[DONE]",)
_RESPONSE_MARKERS: Final = (b"response.completed", b"response.incomplete", b"response.failed")
#: So many bytes of a pattern may stand before its marker, white space of any sensible length included.
_BEFORE: Final = 32
#: Bytes kept of what has passed: a pattern may be split over two chunks.
_KEPT: Final = 64
#: Bytes kept of the event that ends a stream. A response that is longer is not asked whether it was given up.
_EVENT_KEPT: Final = 4 << 20


class StreamWatch:
    """Watches one stream for aborts, errors and a complete end."""

    def __init__(self, *, needs_done: bool) -> None:
        """``needs_done``: a complete stream has a ``[DONE]``; otherwise the event that ends a response."""
        self._needs_done = needs_done
        self._end = _DONE if needs_done else _RESPONSE_END
        self._markers: tuple[bytes, ...] = _DONE_MARKERS if needs_done else _RESPONSE_MARKERS
        self._error_marker = _ERROR_MARKER if needs_done else _RESPONSE_ERROR_MARKER
        self._end_passed = False
        self._tail = b"\n"
        self._last: bytes | None = None
        """The event that ends the stream, as far as it has passed."""
        self._last_whole = False
        self.aborted = False
        """The engine gave the call up."""
        self.failed = False
        """The engine said that it failed."""
        self.failed_at_once = False
        """And that was the first event."""
        self.ended = False
        """The event that says so has passed completely; nothing after it may pass."""

    def passes(self, chunk: bytes) -> bytes:
        """The part of a chunk that may go to the client: all of it, unless the engine aborted the call or failed. Then
        the event that says so is the last one."""
        offset = len(self._tail)
        window = self._tail + chunk
        self._tail = window[-_KEPT:]
        start, begin = max(0, offset - 3), offset  # the end of an event may be split
        if self._last is None:
            found = self._find_last(window)
            if found is None:
                return chunk
            self._last = b""
            begin, start = found.span()
            self.failed_at_once = self.failed and offset == 1 and begin == 0
        elif self._last_whole:
            return chunk
        end = _EVENT_END.search(window, start)
        until = len(window) if end is None else end.end()
        if len(self._last) < _EVENT_KEPT:
            self._last += window[begin:until]
        if end is None:
            return chunk
        self._last_whole = True
        if not self.failed and not self._needs_done:
            self.aborted = says_cancelled(self.last_data)
        self.ended = self.aborted or self.failed
        return window[offset:until] if self.ended else chunk

    def _find_last(self, window: bytes) -> re.Match[bytes] | None:
        """Where the event begins to show that is the last one: an error, an abort, or the end of a response."""
        place = window.find(self._error_marker)
        if place != -1 and (found := _ERROR.search(window, max(0, place - _BEFORE))) is not None:
            self.failed = True
            return found
        if self._needs_done and b'"abort"' in window and (found := _ABORT.search(window)) is not None:
            self.aborted = True
            return found
        if not self._end_passed:
            for marker in self._markers:
                place = window.find(marker)
                if place != -1 and (found := self._end.search(window, max(0, place - _BEFORE))) is not None:
                    self._end_passed = True
                    return None if self._needs_done else found
        return None

    @property
    def last_data(self) -> bytes:
        """What the event that ends the stream holds, as far as it has passed."""
        return b"".join(line[5:] for line in (self._last or b"").splitlines() if line.startswith(b"data:"))

    @property
    def complete(self) -> bool:
        """Whether the stream may end here."""
        return not self.aborted and not self.failed and self._end_passed
