"""One HTTP exchange with a client over ASGI: the body in, exactly one answer out."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from autellix_controller.background import cancel
from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.gateway.budget import Share
from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.interrupt import Interruptible

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


class ClientWire(Protocol):
    """The client's connection, as far as the server lets us have it (an extension of ASGI, see ``protocol.py``)."""

    @property
    def has_all(self) -> bool:
        """The request has arrived completely, body and all; False if that is not known."""

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Has ``callback`` called when the client goes away before its answer is complete; at once if it has."""

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """Writes a whole answer, whose headers are proper ones, in one go. False: it may not be written like that now,
        and nothing was."""

    def write(self, chunk: bytes) -> bool:
        """Writes a piece of an answer that has begun and comes in pieces. False: the client is slower than we are."""

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Has ``callback`` called once when the client has taken what was written."""


#: The header of an answer that is the last one of its connection.
CLOSE: Final = (b"connection", b"close")
#: Where a request's ``ClientWire`` is in its scope's extensions.
WIRE: Final = "autellix.wire"


class ClientGone(Exception):
    """The client went away, or stopped reading; nobody is left to answer."""


class Exchange:
    """The client's side of a call."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        query: bytes = scope["query_string"]
        self.target = self.path + (f"?{query.decode('latin-1')}" if query else "")
        """Path and query."""
        self.headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._by_name = dict(reversed(self.headers))
        self.wire: ClientWire | None = (scope.get("extensions") or {}).get(WIRE)
        self._receive, self._send = receive, send
        self.status = 0
        """Status of the answer, 0 before it began."""
        self.sending = False
        """Waiting for the client to take what was sent."""
        self.receipt: list[tuple[bytes, bytes]] = []
        """Headers that every answer carries from now on."""
        self._streaming = False
        self._finished = False
        self._last = b""
        self._watcher: asyncio.Task[None] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first header of that (lower-case) name."""
        return self._by_name.get(name)

    async def body(self, limit: int, seconds: float, share: Share, timer: DeadlineTimer) -> bytes:
        """Reads the body; its bytes are set aside in ``share`` as they arrive. Raises ApiError 413, 408 or 429, and
        ClientGone."""
        declared = self.header(b"content-length") or b""
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        if self.wire is not None and self.wire.has_all:
            return await self._read_body(limit, share)  # without a wait, so without a deadline
        if declared.isdigit():
            share.check(int(declared))  # before the client sends all of it in vain
        try:
            with timer.deadline(asyncio.get_running_loop().time() + seconds):
                return await self._read_body(limit, share)
        except TimeoutError:
            message = f"The body did not arrive within {seconds:g} s."
            raise ApiError(ErrorCode.BODY_TIMEOUT, message) from None

    async def _read_body(self, limit: int, share: Share) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            share.grow_to(size)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def interrupt_when_gone(self, work: Interruptible) -> None:
        """From now on ends the work when the client goes away. To be called once the body was read."""
        if self.wire is not None:
            self.wire.on_gone(lambda: self._gone(work))
        else:
            self._watcher = asyncio.create_task(self._watch(work))

    async def _watch(self, work: Interruptible) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone(work)

    def _gone(self, work: Interruptible) -> None:
        if not self._finished:  # connections end after a complete answer as well
            work.interrupt(ClientGone())

    async def close(self) -> None:
        """Ends what runs beside the exchange."""
        if self._watcher is not None:
            await cancel(self._watcher)

    @property
    def started(self) -> bool:
        """Whether the client has got any of the answer."""
        return self.status != 0

    async def start_stream(self, status: int, headers: Headers) -> None:
        """Begins an answer that comes in pieces."""
        self._streaming = True
        await self._begin(status, headers)

    async def send(self, chunk: bytes) -> None:
        """Sends a piece; waits while the client is slower than we are."""
        self._last = chunk
        await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    def push(self, chunk: bytes) -> bool:
        """Sends a piece without waiting; only with a ``wire``. False: nothing more until ``when_writable`` says so."""
        assert self.wire is not None
        self._last = chunk
        taken = self.wire.write(chunk)
        self.sending = not taken
        return taken

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Has ``callback`` called once when the client takes more."""
        assert self.wire is not None

        def writable() -> None:
            self.sending = False
            callback()

        self.wire.on_writable(writable)

    async def end_stream(self) -> None:
        """Ends an answer that came in pieces."""
        self._finished = True
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Sends a whole answer."""
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        if self.wire is not None and self.wire.answer(status, [*headers, *self.receipt], body):
            self.status, self._finished = status, True
            return
        await self._begin(status, headers)
        self._finished = True
        await self._put({"type": "http.response.body", "body": body, "more_body": False})

    async def fail(self, error: ApiError) -> None:
        """Ends the exchange with an error: as the answer, or as the last event of a stream that has begun.

        A client that does not even read what was sent before cannot be told.
        """
        if not self.started:
            headers = [(b"content-type", b"application/json"), *error.headers()]
            await self.answer(error.status, headers, error.body())
        elif self._streaming and not self.sending and not self._finished:
            separator = b"" if self._last.endswith((b"\n\n", b"\r\n\r\n")) else b"\n\n"
            await self.send(separator + _error_event(error, self.path))
            await self.end_stream()

    async def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        await self._put({"type": "http.response.start", "status": status, "headers": [*headers, *self.receipt]})

    async def _put(self, message: Message) -> None:
        self.sending = True
        await self._send(message)
        self.sending = False


def _error_event(error: ApiError, path: str) -> bytes:
    if path != "/v1/responses":
        return b"data: " + error.body() + b"\n\n"
    # The Responses API has an event of its own for it.
    event = {"type": "error", "code": error.code.code, "message": error.message, "param": error.param}
    return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _too_large(limit: int) -> ApiError:
    return ApiError(ErrorCode.BODY_TOO_LARGE, f"The body is larger than {limit} bytes.")
