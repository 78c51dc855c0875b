"""The command as a process: its start, its end, its size."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from autellix_controller.table import read_programs
from support.controller_process import controller_process
from support.fake_engine import DONE, Call, FakeEngine, event, fake_engine, hang, pieces, start_stream
from support.ports import free_ports
from support.running_controller import eventually

CALL = {"model": "tiny", "messages": []}


async def test_sigterm_leaves_readiness_serves_on_and_finishes_streams(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        ending = asyncio.Event()

        async def until_told(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
            response = await start_stream(request)
            await response.write(event("x"))
            await ending.wait()
            await response.write(DONE)
            return response

        engine.script = until_told
        settings = ["--engine", engine.url, "--drain-notice-seconds", "8", "--drain-seconds", "60"]
        with controller_process(tmp_path, free_ports(1)[0], *settings, ready=False) as replica:
            await asyncio.to_thread(replica.wait_ready)
            async with (
                aiohttp.ClientSession(replica.url) as http,
                http.post("/v1/chat/completions", json={**CALL, "stream": True}) as stream,
            ):
                await stream.content.readany()
                replica.terminate()
                await eventually(lambda: replica.readiness()[0] == 503, "it is not ready any more")
                assert replica.readiness()[1]["reasons"] == ["the replica is stopping"]
                for _ in range(10):
                    async with http.get("/v1/models", headers={"connection": "close"}) as response:
                        assert response.status == 200, "within the notice it serves as before"
                    await asyncio.sleep(0.1)
                await eventually(lambda: replica.readiness()[0] == 0, "it takes no connections any more")
                await asyncio.sleep(0.5)  # in which it could be cut short
                ending.set()
                assert (await stream.read()).endswith(DONE)
            assert await asyncio.to_thread(replica.process.wait, 60) == 0


async def test_at_the_drain_deadline_a_stream_ends_with_an_error_event(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        engine.script = pieces(event("x"), then="hang")
        settings = ["--engine", engine.url, "--drain-notice-seconds", "0", "--drain-seconds", "0.5"]
        with controller_process(tmp_path, free_ports(1)[0], *settings, ready=False) as replica:
            await asyncio.to_thread(replica.wait_ready)
            async with (
                aiohttp.ClientSession(replica.url) as http,
                http.post("/v1/chat/completions", json={**CALL, "stream": True}) as stream,
            ):
                await stream.content.readany()
                replica.terminate()
                assert b'"code":"shutting_down"' in await stream.read()
            assert await asyncio.to_thread(replica.process.wait, 60) == 0
            await eventually(lambda: engine.running == 0, "the engine was told to stop")


@pytest.mark.parametrize("comes", [True, False], ids=["an engine comes", "no engine comes"])
async def test_held_calls_end_as_running_ones_do_when_it_stops(tmp_path: Path, comes: bool) -> None:
    async with fake_engine() as engine:
        await engine.stop()
        drain = ["--drain-notice-seconds", "0", "--drain-seconds", "60" if comes else "0.5"]
        settings = ["--engine", engine.url, "--hold-seconds", "60", *drain]
        with controller_process(tmp_path, free_ports(1)[0], *settings, ready=False) as replica:
            await asyncio.to_thread(replica.wait_ready)
            async with aiohttp.ClientSession(replica.url) as http:
                call = asyncio.create_task(http.post("/v1/chat/completions", json=CALL))
                while await metric(http, "autellix_controller_held_calls") != 1:
                    await asyncio.sleep(0.01)
                replica.terminate()
                await eventually(lambda: replica.readiness()[0] != 200, "it saw the signal")
                if comes:
                    await engine.start()
                async with await call as response:
                    body = await response.read()
                    assert response.status == (200 if comes else 503)
                    assert (b'"code":"shutting_down"' in body) is not comes
            assert await asyncio.to_thread(replica.process.wait, 60) == 0


async def metric(http: aiohttp.ClientSession, name: str) -> float:
    async with http.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(name + " ")))


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        engine.script = hang
        with controller_process(tmp_path, free_ports(1)[0], "--engine", engine.url, ready=False) as replica:
            await asyncio.to_thread(replica.wait_ready)
            async with aiohttp.ClientSession(replica.url) as http:
                call = asyncio.create_task(http.post("/v1/chat/completions", json=CALL))
                await eventually(lambda: engine.running == 1, "the call runs")
                replica.terminate()
                await eventually(lambda: replica.readiness()[0] == 503, "it saw the signal")
                replica.terminate()
                response = await call
                assert response.status == 503
                response.release()
            assert await asyncio.to_thread(replica.process.wait, 60) == 0


async def test_alone_with_a_file_it_keeps_pins_and_accounts_over_its_own_death(tmp_path: Path) -> None:
    table = f"sqlite://{tmp_path / 'table.db'}"
    async with fake_engine("a", with_records=False) as a, fake_engine("b", with_records=False) as b:
        settings = ["--engine", a.url, "--engine", b.url, "--table", table]
        sessions = [f"s{number}" for number in range(6)]
        before: dict[str, dict[str, Any]] = {}
        for attempt in range(2):
            with controller_process(tmp_path, free_ports(1)[0], *settings, ready=False) as replica:
                await asyncio.to_thread(replica.wait_ready)
                async with aiohttp.ClientSession(replica.url) as http:
                    if attempt:
                        assert {name: await session(http, name) for name in sessions} == before
                    for name in sessions:
                        async with http.post(
                            "/v1/chat/completions", json=CALL, headers={"x-autellix-session": name}
                        ) as response:
                            assert response.headers["x-autellix-route"] == ("pinned" if attempt else "new")
                            assert response.headers["x-autellix-accounting"] == "estimated"
                    found = {name: await session(http, name) for name in sessions}
                    assert {described["calls"] for described in found.values()} == {attempt + 1}
                    written = await read_programs(table, "/autellix/default/default")
                    while {entry.calls for entry in written} != {attempt + 1}:
                        written = await read_programs(table, "/autellix/default/default")
                    before = found
                replica.kill()
        assert "in memory only" not in replica.log_text()


async def session(http: aiohttp.ClientSession, name: str) -> dict[str, Any]:
    async with http.get(f"/v1/sessions/{name}") as response:
        found: dict[str, Any] = await response.json()
        return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "engine, engines: give either engine URLs or one kubernetes://NAMESPACE/SERVICE"),
        (["--engine", "http://e:1", "--max-calls", "no"], "max_calls: 'no': Input should be a valid integer"),
        (["--engine", "http://e:1", "--api-keys-file", "/nonexistent"], "api_keys_file: cannot be read"),
    ],
)
async def test_a_wrong_setting_stops_the_start_with_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    with controller_process(tmp_path, free_ports(1)[0], *arguments, ready=False) as replica:
        assert await asyncio.to_thread(replica.process.wait, 60) == 2
        (line,) = replica.log_text().splitlines()
        assert line.startswith(f"autellix-controller: {message}")


async def test_a_taken_address_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with controller_process(tmp_path, port, "--engine", "http://e:1", ready=False) as replica:
            assert await asyncio.to_thread(replica.process.wait, 60) == 2
            assert replica.log_text() == (
                f"autellix-controller: listen: cannot listen on 127.0.0.1:{port}: Address already in use\n"
            )
