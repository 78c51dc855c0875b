"""One HTTP/1.1 connection to an engine, with one call on it at a time."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools

#: Bytes of an answer that are held for a reader who is slower than the engine; then the socket is not read.
HIGH_WATER: Final = 256 << 10
#: Largest head of an answer, bytes.
HEAD_LIMIT: Final = 64 << 10


class Broken(Exception):
    """The connection ended, or what came is no HTTP. The message is one line."""


class EngineConnection(asyncio.Protocol):
    """Sends one call after another and takes their answers apart.

    What arrives goes to ``sink`` at once, without waking a task, or is kept until ``chunk`` asks for it.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._broken: str | None = None
        self._sink: Callable[[bytes], None] | None = None
        self.idle_since = 0.0
        """When it was given back to the pool, on the loop's clock."""
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        """Of the answer; 0 until its head is complete."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        """The whole answer has arrived."""
        self.touched = False
        """Anything of the answer has arrived."""
        self._parts: list[bytes] = []
        self._held = 0
        self._head_bytes = 0
        self._paused = False
        self._framed = False
        self._in_call = False

    # What users call

    @property
    def reusable(self) -> bool:
        """Whether another call may be sent."""
        transport = self._transport
        return (
            self._broken is None
            and transport is not None
            and not transport.is_closing()
            and (self.complete or not self._in_call)
            and transport.get_write_buffer_size() == 0
        )

    def send(self, head: bytes, body: bytes) -> None:
        """Sends a call. Nothing may be under way."""
        self._reset()
        self._in_call = True
        if self._transport is None or self._broken is not None:
            return  # whoever waits for the answer is told so
        self._transport.write(head + body if len(body) < HIGH_WATER else head)
        if len(body) >= HIGH_WATER:
            self._transport.write(body)

    async def head(self) -> None:
        """Returns once the answer's head is complete. Raises Broken."""
        while not self.status:
            await self._wait()

    async def chunk(self) -> bytes:
        """What has arrived of the body since the last time; empty at the end. Raises Broken."""
        while not self._parts:
            if self.complete:
                return b""
            await self._wait()
        self.resume()
        return self._take()

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Gives every piece of the body to ``sink`` as it arrives; returns at the end. Raises Broken, and whatever
        ``sink`` raises."""
        self.resume()
        if self._parts:
            sink(self._take())
        self._sink = sink
        try:
            while not self.complete:
                await self._wait()
        finally:
            self._sink = None

    def pause(self) -> None:
        """Stops reading, since the client is slower than the engine."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self) -> bytes:
        parts, self._parts, self._held = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _wait(self) -> None:
        if self._broken is not None:
            raise Broken(self._broken)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self, error: Exception | None = None) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _break(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
        self.abort()
        if not self.complete:
            self._wake()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is none by its class

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if not self._in_call or self.complete:
            self._break("the engine sent what was not asked for")
            return
        self.touched = True
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("the engine wants another protocol")
        except httptools.HttpParserError as error:
            self._break(f"not HTTP: {error}"[:200])
        if not self.status and self._head_bytes > HEAD_LIMIT:
            self._break(f"the head of the answer is larger than {HEAD_LIMIT} bytes")
        self._pass_on()

    def _pass_on(self) -> None:
        if self._sink is None:
            if self._held > HIGH_WATER:
                self.pause()
            self._wake()
            return
        if self._parts:
            try:
                self._sink(self._take())
            except Exception as error:
                self._sink = None
                self._wake(error)
        if self.complete:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        if exc is None and self.status and not self._framed:
            self.complete = True  # a body that ends with its connection
        reason = "closed by the engine" if exc is None else f"{type(exc).__name__}: {exc}"[:200].replace("\n", " ")
        self._broken = self._broken or reason
        self._wake()

    # What the parser calls

    def on_message_begin(self) -> None:
        """See httptools."""
        if self.complete:
            self._broken = "the engine sent what was not asked for"

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if not self.status:  # afterwards they are trailers
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """See httptools."""
        status = self._parser.get_status_code()
        if self.complete:
            return
        if status < 200:  # it announces something; the answer is still to come
            self.headers = []
            return
        self._framed = status in (204, 304) or any(
            name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        )
        self.status = status

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if not self.complete:
            self._parts.append(body)
            self._held += len(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        if self.status and not self.complete:
            self.complete = True
            if not self._parser.should_keep_alive() and self._broken is None:
                self._broken = "closed by the engine"
                if self._transport is not None:
                    self._transport.close()
