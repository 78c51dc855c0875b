"""The HTTP client towards engines, behind a small seam: open, status, headers, chunks, close.

It is our own because a general client cost most of what a call costs here (``docs/decisions/0011``), and because what
an engine streams can go straight to the client's connection, without a task that wakes for every token.
"""

import asyncio
import functools
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from autellix_controller.files import is_exhaustion
from autellix_controller.gateway.connection import Broken, EngineConnection

Headers = Sequence[tuple[bytes, bytes]]

#: vLLM closes idle connections after 5 s: we close earlier, or a call would meet a connection that is just going.
_IDLE_SECONDS: Final = 3.0


class UpstreamFailed(Exception):
    """An engine could not be asked, or its answer broke off. The message is one line for logs."""


class NotConnected(UpstreamFailed):
    """No connection was made in time: the engine never saw the call. It may be busy, or gone."""


class Unreachable(NotConnected):
    """Connections are refused: nothing listens there."""


class Exhausted(NotConnected):
    """This machine has no file, memory or port left for a connection: that says nothing about the engine."""


class UpstreamAnswer(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Headers:
        """Headers as they came."""

    async def chunk(self) -> bytes:
        """The next bytes as they arrived, empty at the end. Raises UpstreamFailed if the answer breaks off."""

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Gives the rest to ``sink``, each piece as it arrives; returns at the end. Raises UpstreamFailed if the
        answer breaks off, and whatever ``sink`` raises."""

    def pause(self) -> None:
        """Stops taking more from the engine, until ``resume``."""

    def resume(self) -> None:
        """Goes on taking."""

    def close(self) -> None:
        """Ends the exchange; before the end of the answer this closes the connection, which aborts the call."""


class Upstream(Protocol):
    """Sends calls to engines."""

    async def post(self, url: str, target: str, body: bytes, headers: Headers) -> UpstreamAnswer:
        """Sends a call to the ``target`` (path and query) of the engine at ``url``, and waits for the head of its
        answer. Raises UpstreamFailed.

        When cancelled it closes the connection, which aborts the call on the engine.
        """


class _Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    tls: bool
    prefix: str
    """Path of the base URL."""
    host_header: bytes


@functools.lru_cache(maxsize=1024)
def _address(url: str) -> _Address:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    return _Address(
        parts.hostname or "", parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"), parts.netloc.encode()
    )


def _head(address: _Address, target: str, size: int, headers: Headers) -> bytes:
    lines = [
        b"POST %s%s HTTP/1.1\r\nhost: %s\r\ncontent-length: %d\r\n"
        % (address.prefix.encode(), target.encode("latin-1"), address.host_header, size)
    ]
    lines += [b"%s: %s\r\n" % header for header in headers]
    lines.append(b"\r\n")
    return b"".join(lines)


class PooledUpstream:
    """``Upstream`` over HTTP/1.1 with a pool of connections to each engine."""

    def __init__(self, *, connect_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._idle: dict[str, list[EngineConnection]] = {}
        """By base URL; the last used are at the end."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: str, target: str, body: bytes, headers: Headers) -> UpstreamAnswer:
        """See ``Upstream``.

        A pooled connection that the engine was just closing fails without a byte of an answer: that says nothing about
        the engine, so the call is sent once more, on a new connection. RFC 9110 (section 9.2.2) allows that although
        POST is not idempotent by itself: a call that ran unseen has changed nothing, and took the engine's time only.
        """
        address = _address(url)
        head = _head(address, target, len(body), headers)
        pooled = self._from_pool(url)
        if pooled is not None:
            try:
                return await self._ask(pooled, url, head, body)
            except Broken as error:
                if pooled.touched:
                    raise UpstreamFailed(str(error)) from None
        # Never by a second pooled one: if those are closing as well, or it is the call that makes the engine close
        # them, it would be sent once for each.
        connection = await self._connect(address)
        try:
            return await self._ask(connection, url, head, body)
        except Broken as error:
            raise UpstreamFailed(str(error)) from None

    async def _ask(self, connection: EngineConnection, url: str, head: bytes, body: bytes) -> UpstreamAnswer:
        try:
            connection.send(head, body)
            await connection.head()
        except BaseException:
            connection.abort()
            raise
        return _Answer(self, url, connection)

    def _from_pool(self, url: str) -> EngineConnection | None:
        idle = self._idle.get(url)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
            connection.abort()
        return None

    async def _connect(self, address: _Address) -> EngineConnection:
        if address.tls and self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    EngineConnection, address.host, address.port, ssl=self._tls if address.tls else None
                )
        except TimeoutError:
            raise NotConnected(f"no connection within {self._connect_seconds:g} s") from None
        except (OSError, ssl.SSLError) as error:
            reason = f"{type(error).__name__}: {error}"[:200].replace("\n", " ")
            raise (Exhausted if is_exhaustion(error) else Unreachable)(reason) from None
        return connection

    def give_back(self, url: str, connection: EngineConnection) -> None:
        """Keeps a connection for the next call."""
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(url, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(_IDLE_SECONDS / 2, self._sweep)

    def _sweep(self) -> None:
        """Closes what was idle for too long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _IDLE_SECONDS / 2
        for url, idle in list(self._idle.items()):
            fresh = []
            for connection in idle:
                if connection.idle_since > oldest and connection.reusable:
                    fresh.append(connection)
                else:
                    connection.abort()
            if fresh:
                self._idle[url] = fresh
            else:
                del self._idle[url]
        self._sweeper = loop.call_later(_IDLE_SECONDS / 2, self._sweep) if self._idle else None

    def close(self) -> None:
        """Closes the idle connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()


class _Answer:
    def __init__(self, pool: PooledUpstream, url: str, connection: EngineConnection) -> None:
        self._pool, self._url, self._connection = pool, url, connection
        self.status, self.headers = connection.status, connection.headers
        self.pause, self.resume = connection.pause, connection.resume

    async def chunk(self) -> bytes:
        try:
            return await self._connection.chunk()
        except Broken as error:
            raise UpstreamFailed(str(error)) from None

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        try:
            await self._connection.pump(sink)
        except Broken as error:
            raise UpstreamFailed(str(error)) from None

    def close(self) -> None:
        if self._connection.complete and self._connection.reusable:
            self._pool.give_back(self._url, self._connection)
        else:
            self._connection.abort()
