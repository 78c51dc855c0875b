"""A TCP proxy between a replica and etcd that can be cut, or lose what etcd answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Forwards bytes to ``host:port``; faults apply to all connections."""

    def __init__(self, upstream: str) -> None:
        self._host, _, port = upstream.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._listen_port = 0
        self.delay_seconds = 0.0
        """Each piece of an answer comes so much later."""

    @property
    def url(self) -> str:
        """For ``open_table``."""
        return f"etcd://127.0.0.1:{self._listen_port}"

    async def restore(self) -> None:
        """Accepts connections (again) and forwards everything at once."""
        self._answers.set()
        self.delay_seconds = 0.0
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._listen_port)
            self._listen_port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Closes all connections and refuses new ones. What etcd answered in the meantime is lost."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def hold_answers(self) -> None:
        """Requests reach etcd, its answers do not come back until ``restore``; connections stay open."""
        self._answers.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
            try:
                async with asyncio.TaskGroup() as pipes:
                    pipes.create_task(self._pipe(reader, up_writer, None))
                    pipes.create_task(self._pipe(up_reader, writer, self._answers))
            finally:
                up_writer.close()
        except* (OSError, _Closed):
            pass
        finally:
            writer.close()
            self._pipes.discard(task)

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None
    ) -> None:
        while data := await reader.read(65536):
            if gate is not None:
                await gate.wait()
                await asyncio.sleep(self.delay_seconds)
            writer.write(data)
            await writer.drain()
        raise _Closed


class _Closed(Exception):
    """One side ended the connection."""


@contextlib.asynccontextmanager
async def proxy_to(upstream: str) -> AsyncIterator[Proxy]:
    """A proxy that forwards, closed afterwards."""
    proxy = Proxy(upstream)
    await proxy.restore()
    try:
        yield proxy
    finally:
        await proxy.cut()
