"""Every row of the table of errors in docs/http-api.md, provoked through a real server."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autellix_controller.protocol import HEAD_LIMIT
from autellix_controller.table.interface import TableUnavailable
from support.fake_engine import FakeEngine, fake_engine, hang, status
from support.running_controller import Replica, eventually, running_controller

PAGE = Path(__file__).parents[4] / "docs" / "http-api.md"
ROWS = re.findall(r"^\| `(\w+)` \| (\d{3}) \| `(\w+)` \| .* \| (.*) \|$", PAGE.read_text(), re.MULTILINE)

KEY = {"authorization": "Bearer key-of-alice"}
CHAT = "/v1/chat/completions"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class Scene:
    """A controller and its engine, and what was asked of them."""

    replica: Replica
    engine: FakeEngine
    patch: pytest.MonkeyPatch
    running: list["asyncio.Task[Answer]"] = field(default_factory=list)

    async def ask(self, method: str = "POST", path: str = CHAT, **options: Any) -> Answer:
        headers = {**KEY, **options.pop("headers", {})}
        if method == "POST" and path == CHAT and not {"json", "data"} & options.keys():
            options["json"] = self.replica.call()
        async with self.replica.http.request(method, path, headers=headers, **options) as response:
            text = await response.read()
            return Answer(response.status, {n.lower(): v for n, v in response.headers.items()}, json.loads(text))

    async def busy(self, session: str = "s1") -> None:
        """A call that runs."""
        self.engine.script = hang
        self.running.append(asyncio.create_task(self.ask(headers={"x-autellix-session": session})))
        await eventually(lambda: self.engine.running == 1, "a call runs")

    async def raw(self, *parts: bytes) -> Answer:
        """Sends bytes as they are; each part once the one before has arrived."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.replica.url.rsplit(":", 1)[1]))
        try:
            for part in parts:
                writer.write(part)
                await self.replica.json("GET", "/healthz")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return Answer(int(first.split()[1]), headers, json.loads(body))


Provoke = Callable[[Scene], Awaitable[Answer]]
PROVOKED: dict[str, tuple[dict[str, Any], Provoke]] = {}


def provokes(code: str, **settings: Any) -> Callable[[Provoke], Provoke]:
    def register(provoke: Provoke) -> Provoke:
        PROVOKED[code] = (settings, provoke)
        return provoke

    return register


@provokes("invalid_request")
async def _(scene: Scene) -> Answer:
    assert (await scene.raw(b"NO HTTP AT ALL\r\n\r\n")).body["error"]["code"] == "invalid_request"
    return await scene.ask(data=b"{", headers={"content-type": "application/json"})


@provokes("invalid_api_key")
async def _(scene: Scene) -> Answer:
    return await scene.ask(headers={"authorization": "Bearer wrong"})


@provokes("model_not_found")
async def _(scene: Scene) -> Answer:
    return await scene.ask(json=scene.replica.call(model="gpt-9"))


@provokes("session_not_found")
async def _(scene: Scene) -> Answer:
    return await scene.ask("GET", "/v1/sessions/none")


@provokes("route_not_found")
async def _(scene: Scene) -> Answer:
    return await scene.ask("GET", "/v2")


@provokes("method_not_allowed")
async def _(scene: Scene) -> Answer:
    return await scene.ask("GET", CHAT)


@provokes("headers_timeout", body_deadline_seconds=0.2)
async def _(scene: Scene) -> Answer:
    return await scene.raw(b"GET /healthz HTTP/1.1\r\nx: ")


@provokes("body_timeout", body_deadline_seconds=0.1)
async def _(scene: Scene) -> Answer:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: {KEY['authorization']}\r\nconnection: close\r\n"
    return await scene.raw(head.encode() + b"content-length: 9\r\n\r\n{")


@provokes("session_ended")
async def _(scene: Scene) -> Answer:
    await scene.busy("s1")
    assert (await scene.ask("DELETE", "/v1/sessions/s1?cancel_calls=true")).status == 200
    return await scene.running[0]


@provokes("body_too_large", body_limit_bytes=1024)
async def _(scene: Scene) -> Answer:
    return await scene.ask(json=scene.replica.call(pad="x" * 2000))


@provokes("unsupported_media_type")
async def _(scene: Scene) -> Answer:
    return await scene.ask(data=b"{}", headers={"content-type": "text/plain"})


@provokes("contended", max_calls=1)
async def _(scene: Scene) -> Answer:
    await scene.busy()
    return await scene.ask()


@provokes("rate_limit_exceeded")
async def _(scene: Scene) -> Answer:
    limited = {"authorization": "Bearer key-of-limited"}
    assert (await scene.ask(headers=limited)).status == 200
    return await scene.ask(headers=limited)


@provokes("headers_too_large")
async def _(scene: Scene) -> Answer:
    # Not a byte more than is refused: what a server leaves unread resets the connection.
    return await scene.raw(b"GET /healthz HTTP/1.1\r\nx: ", b"x" * (HEAD_LIMIT + 1))


@provokes("internal_error")
async def _(scene: Scene) -> Answer:
    def defect(*program: object, **options: object) -> None:
        raise ZeroDivisionError

    scene.patch.setattr(scene.replica.controller.slots, "take", defect)
    return await scene.ask()


@provokes("engine_error")
async def _(scene: Scene) -> Answer:
    scene.engine.script = status(500)
    return await scene.ask()


@provokes("no_engine")
async def _(scene: Scene) -> Answer:
    await scene.engine.stop()
    return await scene.ask()


@provokes("table_unavailable")
async def _(scene: Scene) -> Answer:
    async def away(program: str, *, cancel: bool) -> bool:
        raise TableUnavailable("etcd is away for 3 s")

    assert (await scene.ask("POST", "/v1/sessions", json={"id": "s1"})).status == 200
    scene.patch.setattr(scene.replica.controller.table, "end", away)
    return await scene.ask("DELETE", "/v1/sessions/s1")


@provokes("shutting_down")
async def _(scene: Scene) -> Answer:
    await scene.busy()
    scene.replica.controller.interrupt_calls()
    return await scene.running[0]


@provokes("deadline_exceeded", first_byte_deadline_seconds=0.1)
async def _(scene: Scene) -> Answer:
    scene.engine.script = hang
    return await scene.ask()


def test_the_table_was_read() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize(("code", "expected", "kind", "retry"), ROWS, ids=[row[0] for row in ROWS])
async def test_the_error_of_a_row_comes_as_the_row_says(
    code: str, expected: str, kind: str, retry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code in PROVOKED, "each documented error has to be provoked here"
    settings, provoke = PROVOKED[code]
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nlimited:key-of-limited requests_per_minute=1\n")
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys, **settings) as replica:
        scene = Scene(replica, engine, monkeypatch)
        answer = await provoke(scene)
        for task in scene.running:
            task.cancel()
        await asyncio.gather(*scene.running, return_exceptions=True)
    assert answer.status == int(expected)
    assert answer.headers["content-type"] == "application/json"
    error = answer.body["error"]
    assert (error["code"], error["type"], set(error)) == (code, kind, {"message", "type", "param", "code"})
    assert error["message"]
    assert ("retry-after" in answer.headers) is ("Retry-After" in retry or code == "shutting_down")
