"""A controller replica inside the test's own process, behind a real HTTP server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvicorn

from autellix_controller import server
from autellix_controller.access import KeysFile
from autellix_controller.controller import Controller
from autellix_controller.engines.keys import EngineKeys, engine_keys
from autellix_controller.settings import Settings
from support.fake_engine import MODEL, FakeEngine


async def eventually(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Waits until the condition holds. Fails if it does not in time."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"within {seconds:g} s it did not come true that {what}") from None


@dataclass
class Replica:
    """A running replica and a client for it."""

    controller: Controller
    settings: Settings
    http: aiohttp.ClientSession
    url: str
    server: uvicorn.Server
    engine_keys: EngineKeys

    @property
    def connections(self) -> int:
        """Connections of clients that the server has not got rid of."""
        return len(self.server.server_state.connections)

    def call(self, **fields: Any) -> dict[str, Any]:
        """The body of a plain call."""
        return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}

    async def chat(self, session: str | None = None, **fields: Any) -> tuple[aiohttp.ClientResponse, bytes]:
        """Sends one chat completion and reads the whole answer."""
        headers = {"x-autellix-session": session} if session else {}
        async with self.http.post("/v1/chat/completions", json=self.call(**fields), headers=headers) as response:
            return response, await response.read()

    async def json(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Any request with a JSON answer."""
        async with self.http.request(method, path, **options) as response:
            return response.status, await response.json()

    async def metric(self, name: str) -> float:
        """The value of one line of the metrics, given its name and labels."""
        async with self.http.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(name + " ")))


@asynccontextmanager
async def running_controller(
    *engines: FakeEngine | str, ready: bool = True, headers: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Replica]:
    """A replica in front of the engines; ``settings`` are those of ``Settings``, ``engine_key`` besides."""
    key = settings.pop("engine_key", None)
    urls = [engine if isinstance(engine, str) else engine.url for engine in engines]
    values = {"listen": "127.0.0.1:0", "engine": urls, "probe_seconds": 0.2, **settings}
    checked = Settings.model_validate(values)
    keys = KeysFile(checked.api_keys_file) if checked.api_keys_file else None
    sock = server.listen(checked)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    shown = EngineKeys([key]) if key else engine_keys(checked.engine_key_file, {})
    async with Controller(checked, keys=keys, engine_keys=shown) as controller:
        http_server = server.http_server(controller, checked)
        http_server.config.load()
        http_server.lifespan = http_server.config.lifespan_class(http_server.config)
        await http_server.startup(sockets=[sock])
        try:
            if ready:
                await eventually(lambda: controller.readiness().ready, "the replica is ready")
            async with aiohttp.ClientSession(url, headers=headers, auto_decompress=False) as http:
                yield Replica(controller, checked, http, url, http_server, shown)
        finally:
            # Without the pauses of an orderly end, which has tests of its own.
            for listener in http_server.servers:
                listener.close()
            for connection in list(http_server.server_state.connections):
                connection.transport.abort()
            controller.interrupt_calls()
            await asyncio.gather(*http_server.server_state.tasks)
