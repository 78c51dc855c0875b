"""Several processes on one port, over one etcd."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from support.controller_process import ControllerProcess, controller_process
from support.etcd import running_etcd
from support.fake_engine import FakeEngine, fake_engine
from support.ports import free_ports
from support.running_controller import eventually

CALL = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Shared:
    """Two processes that share a port."""

    processes: dict[str, ControllerProcess]
    engines: list[FakeEngine]
    url: str


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    async with AsyncExitStack() as stack:
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd"))
        engines = [await stack.enter_async_context(fake_engine(f"engine-{name}")) for name in "ab"]
        (port,) = free_ports(1)
        arguments = [part for engine in engines for part in ("--engine", engine.url)]
        arguments += ["--share-port", "--table", etcd.url, "--drain-notice-seconds", "1"]
        processes = {}
        for name in ("one", "two"):
            (folder := tmp_path / name).mkdir()
            named = [*arguments, "--replica", name]
            process = stack.enter_context(controller_process(folder, port, *named, ready=False))
            processes[name] = process
        for process in processes.values():
            await eventually(lambda p=process: '"listening"' in p.log_text(), "it serves")  # type: ignore[misc]
        yield Shared(processes, engines, f"http://127.0.0.1:{port}")


async def call(http: aiohttp.ClientSession, session: str) -> str:
    """Makes one call; the engine that served it."""
    headers = {"x-autellix-session": session}
    async with http.post("/v1/chat/completions", json=CALL, headers=headers) as response:
        assert response.status == 200, await response.text()
        return response.headers["x-autellix-engine"]


async def test_turns_of_one_program_meet_both_processes_and_one_engine(shared: Shared) -> None:
    served = set()
    for _ in range(40):  # each over a connection of its own, which the kernel gives to one of the two
        async with aiohttp.ClientSession(shared.url) as http:
            served.add(await call(http, "s1"))
    assert len(served) == 1
    (engine,) = [engine for engine in shared.engines if engine.calls]
    assert {call.xargs["autellix_replica"] for call in engine.calls} == {"one", "two"}
    assert len({call.xargs["autellix_program"] for call in engine.calls}) == 1


async def test_nothing_fails_when_one_process_stops(shared: Shared) -> None:
    """Neither calls on connections that are kept nor connections that are just being made."""
    stopped, made, met = asyncio.Event(), 0, 0

    async def keep_calling(name: str) -> None:
        nonlocal made
        async with aiohttp.ClientSession(shared.url) as http:
            while not stopped.is_set():
                await call(http, name)
                made += 1

    async def come_anew() -> None:
        nonlocal met
        port = int(shared.url.rpartition(":")[2])
        while not stopped.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            met += 1

    clients = [asyncio.create_task(keep_calling(f"s{n}")) for n in range(4)]
    clients += [asyncio.create_task(come_anew()) for _ in range(32)]
    await eventually(lambda: made > 50 and met > 50, "both are served")
    one = shared.processes["one"]
    one.terminate()
    assert await asyncio.to_thread(one.process.wait, 60) == 0
    before = made + met
    await eventually(lambda: made + met > before + 100, "the other process serves on")
    stopped.set()
    await asyncio.gather(*clients)


async def test_a_process_that_is_not_ready_gets_no_connection(shared: Shared, tmp_path: Path) -> None:
    (folder := tmp_path / "three").mkdir()
    port = int(shared.url.rpartition(":")[2])
    away = ["--share-port", "--table", f"etcd://127.0.0.1:{free_ports(1)[0]}", "--replica", "three"]
    with controller_process(folder, port, *away, "--engine", shared.engines[0].url, ready=False) as three:
        await eventually(lambda: "engine in rotation" in three.log_text(), "it runs")
        for _ in range(20):
            async with aiohttp.ClientSession(shared.url) as http:
                await call(http, "s1")
        assert not any(call.xargs["autellix_replica"] == "three" for e in shared.engines for call in e.calls)
        three.terminate()
        assert await asyncio.to_thread(three.process.wait, 60) == 0
