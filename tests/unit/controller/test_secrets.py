"""Neither keys of clients nor those of engines get into logs, metrics, readiness or errors, whatever goes wrong."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from autellix_controller.logs import JsonFormatter
from support.fake_engine import FakeEngine, cut, fake_engine, hang, status
from support.running_controller import Replica, eventually, running_controller

CLIENT_KEY = "client-key-4711"
WRONG_KEY = "wrong-key-4712"
ENGINE_KEY = "engine-key-4713"
NEW_ENGINE_KEY = "engine-key-4714"
SECRETS = (CLIENT_KEY, WRONG_KEY, ENGINE_KEY, NEW_ENGINE_KEY)


class Told:
    """All that was said to clients."""

    def __init__(self, replica: Replica) -> None:
        self._replica, self.text = replica, ""

    async def ask(self, method: str, path: str, expected: int, *, key: str = CLIENT_KEY, body: object = None) -> None:
        """A request and its answer, headers and all."""
        headers = {"authorization": f"Bearer {key}", "x-autellix-session": "s1"}
        async with self._replica.http.request(method, path, json=body, headers=headers) as response:
            self.text += f"{response.headers}{await response.text()}"
            assert response.status == expected, self.text

    async def raw(self, request: bytes) -> None:
        """Bytes on a connection of their own, and what comes back until it is closed."""
        reader, writer = await asyncio.open_connection(self._replica.settings.host, URL(self._replica.url).port)
        writer.write(request)
        with contextlib.suppress(ConnectionResetError):  # it did not read all before it closed
            async with asyncio.timeout(10):
                self.text += (await reader.read()).decode()
        writer.close()


async def everything_goes_wrong(replica: Replica, engine: FakeEngine, keys: Path, engine_keys: Path) -> str:
    """What clients are told meanwhile."""
    told, call = Told(replica), replica.call()
    chat = "/v1/chat/completions"
    await told.ask("POST", chat, 200, body=call)
    for path in (chat, "/v1/sessions"):
        await told.ask("POST", path, 401, key=WRONG_KEY, body=call)
    await told.ask("GET", "/v1/sessions/unknown?key=" + CLIENT_KEY, 404)
    await told.ask("PUT", chat, 405, body=call)
    await told.ask("POST", chat, 400, body=[])
    for script, expected in ((status(500), 502), (status(418), 418), (cut, 502), (hang, 504)):
        engine.script = script
        await told.ask("POST", chat, expected, body=call)
    authorization = f"Authorization: Bearer {CLIENT_KEY}\r\n".encode()
    await told.raw(b"GET / HTTP/1.1\r\n" + authorization + b"no header at all\r\n\r\n")
    await told.raw(b"GET / HTTP/1.1\r\n" + authorization + b"X: " + b"x" * 1_000_000)
    with pytest.MonkeyPatch.context() as defect:
        defect.setattr(replica.controller.gateway.calls, "add", None)
        await told.ask("POST", chat, 500, body=call)
    keys.write_text(f"alice:{CLIENT_KEY} calls={WRONG_KEY}\n")
    engine_keys.write_text(f"{NEW_ENGINE_KEY} {ENGINE_KEY}\n")
    engine.keys = {"another"}
    await eventually(lambda: bool(replica.controller.fleet.troubles()), "the engine refuses the key")
    await told.ask("POST", chat, 503, body=call)
    return told.text


async def test_no_key_is_told_to_anybody_whatever_goes_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys, engine_keys = tmp_path / "keys", tmp_path / "engine-keys"
    keys.write_text(f"alice:{CLIENT_KEY}\n")
    engine_keys.write_text(f"{ENGINE_KEY}\n")
    settings: dict[str, Any] = {
        "api_keys_file": keys,
        "engine_key_file": engine_keys,
        "first_byte_deadline_seconds": 0.2,
    }
    async with fake_engine(key=ENGINE_KEY) as engine, running_controller(engine, **settings) as replica:
        told = await everything_goes_wrong(replica, engine, keys, engine_keys)
        for path in ("/metrics", "/readyz", "/healthz"):
            async with replica.http.get(path) as response:
                told += await response.text()
        await eventually(lambda: "API keys" in caplog.text, "the damaged file was noticed")
    formatter = JsonFormatter()
    log = "\n".join(formatter.format(record) for record in caplog.records)
    for expected in ("attempt failed", "call failed by a defect", "Traceback", "refuses the engine key", "calls"):
        assert expected in log + told, "the run shows too little"
    for secret in SECRETS:
        assert secret not in log
        assert secret not in told
