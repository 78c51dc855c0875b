"""HTTP/1.1 as uvicorn speaks it, with bounds on the head of a request (bytes, and time to arrive), our errors for what
is no HTTP, and a way for the gateway to reach the connection itself: streams go over it without a task for every piece,
answers in one write."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from autellix_controller.errors import ApiError, ErrorCode, invalid
from autellix_controller.gateway.exchange import CLOSE, WIRE, Headers

#: Request line and headers together, bytes: four times what usual servers take.
HEAD_LIMIT: Final = 64 << 10
#: What a client may send ahead of the answer to its running request before we read no more. While we read we notice
#: that it leaves.
AHEAD_LIMIT: Final = 64 << 10


class HttpProtocol(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *args: Any, head_seconds: float, refused: Callable[[int], None], **options: Any) -> None:
        """``head_seconds``: how long the head of a request may take, from the connection or from its first byte on;
        ``refused`` is told the status of each answer that is given here; the rest as for uvicorn."""
        super().__init__(*args, **options)
        self._refused = refused
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None

    _in_head = False
    _head_bytes = 0
    _ahead_bytes = 0
    _lost = False
    _running: RequestResponseCycle | None = None
    _when_writable: Callable[[], None] | None = None
    _when_gone: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See ``asyncio.Protocol``."""
        super().connection_made(transport)
        self._time_head()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        began_earlier = self._in_head
        super().data_received(data)
        if self.pipeline:
            self._sent_ahead(len(data))
        elif self._ahead_bytes:
            self._ahead_bytes = 0
        if not self._in_head:
            if self.cycle is None or self.cycle.response_complete:
                # What came belongs to no request that is still to be answered, and uvicorn has put its own timer off.
                self._time_head()
            else:
                self._stop_timing_head()
            return
        self._time_head()
        # What a client holds back of a head is kept by the parser, which has no bound of its own. The piece in which
        # the head begins does not count: it may hold the end of a body as well.
        self._head_bytes = self._head_bytes + len(data) if began_earlier else 0
        if self._head_bytes > HEAD_LIMIT and not self.transport.is_closing():
            self._refuse(ApiError(ErrorCode.HEADERS_TOO_LARGE, f"The headers are larger than {HEAD_LIMIT} bytes."))

    def _time_head(self) -> None:
        """From now on the next head has to arrive in time, unless that counts already."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self._head_is_late)

    def _stop_timing_head(self) -> None:
        """None has to arrive any more."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._time_head()  # the answer to the request before is not held up by half a head after it
        elif self._in_head:
            message = f"The headers did not arrive within {self._head_seconds:g} s."
            self._refuse(ApiError(ErrorCode.HEADERS_TIMEOUT, message))
        else:
            self.transport.close()

    def _sent_ahead(self, size: int) -> None:
        self._ahead_bytes += size
        if self._ahead_bytes <= AHEAD_LIMIT and self._when_gone is not None:
            self.flow.resume_reading()  # uvicorn has stopped it for the request that came

    def on_message_begin(self) -> None:
        """See httptools."""
        self._in_head = True
        super().on_message_begin()
        self.scope["extensions"] = {WIRE: self}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_head = False
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True  # uvicorn tells only the newest request, which may not be the running one
            running.message_event.set()
        super().connection_lost(exc)
        self._lost = True
        self._stop_timing_head()
        self._say_gone()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        super().resume_writing()
        callback, self._when_writable = self._when_writable, None
        if callback is not None:
            callback()

    @property
    def has_all(self) -> bool:
        """See ``ClientWire``. Requests arrive one after the other: if the newest is complete, so are those before."""
        return not self.cycle.more_body

    def on_gone(self, callback: Callable[[], None]) -> None:
        """See ``ClientWire``."""
        self._when_gone = callback
        if self._lost:
            self._say_gone()
        else:
            self.flow.resume_reading()  # or the end of the connection would not be seen

    def _say_gone(self) -> None:
        callback, self._when_gone = self._when_gone, None
        if callback is not None:
            callback()

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """See ``ClientWire``. Does what uvicorn does for the two messages of ASGI."""
        cycle = self.cycle
        if self.pipeline or self.flow.write_paused:
            return False  # the present cycle is not that of the running request, or the client has to take more first
        if cycle.disconnected:
            return True
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        if CLOSE in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines += (b"connection: close\r\n",)
        lines += (b"\r\n", body if cycle.scope["method"] != "HEAD" else b"")
        self.transport.write(b"".join(lines))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def write(self, chunk: bytes) -> bool:
        """See ``ClientWire``."""
        if chunk and not self.transport.is_closing():  # an empty piece would say that the answer ends
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return not self.flow.write_paused

    def on_writable(self, callback: Callable[[], None]) -> None:
        """See ``ClientWire``."""
        self._when_writable = callback

    def send_400_response(self, msg: str) -> None:
        """Called for what the parser does not understand."""
        self._refuse(invalid("That is not a valid HTTP request."))

    def _refuse(self, error: ApiError) -> None:
        self._refused(error.status)
        body = error.body()
        status = HTTPStatus(error.status)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        own = b"".join(b"%b: %b\r\n" % header for header in error.headers())
        self.transport.write(b"".join((head.encode(), own, b"\r\n", body)))
        self.transport.close()
