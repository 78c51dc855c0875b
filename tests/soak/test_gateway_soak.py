"""Long runs of the gateway as a process: `make soak-gateway`, a few minutes."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from support.controller_process import ControllerProcess, controller_process
from support.fake_engine import DONE, Call, FakeEngine, answer, event, fake_engine, hang, pieces, start_stream
from support.ports import free_ports
from support.running_controller import eventually

ABORTS = int(os.environ.get("AUTELLIX_SOAK_ABORTS", "10000"))
STREAMS = int(os.environ.get("AUTELLIX_SOAK_STREAMS", "2000"))
CALL = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def gateway(folder: Path, engine: FakeEngine, *arguments: str) -> AsyncIterator[ControllerProcess]:
    named = ["--engine", engine.url, "--log-level", "warning", *arguments]
    with controller_process(folder, free_ports(1)[0], *named, ready=False) as replica:
        await asyncio.to_thread(replica.wait_ready)
        yield replica


def resident_mib(replica: ControllerProcess) -> float:
    text = Path(f"/proc/{replica.process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def open_files(replica: ControllerProcess) -> int:
    return len(list(Path(f"/proc/{replica.process.pid}/fd").iterdir()))


async def figures(http: aiohttp.ClientSession) -> dict[str, float]:
    async with http.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


async def all_is_free(http: aiohttp.ClientSession, engine: FakeEngine) -> dict[str, float]:
    """Returns when no call is anywhere; the figures then."""
    await eventually(lambda: engine.running == 0, "the engine is idle", seconds=30)
    async with asyncio.timeout(30):
        while (found := await figures(http))["autellix_controller_running_calls"]:
            await asyncio.sleep(0.05)
    for name in ("running_calls", "queued_calls", "body_bytes"):
        assert found[f"autellix_controller_{name}"] == 0, name
    assert all(value == 0 for name, value in found.items() if name.startswith("autellix_controller_engine_calls{"))
    return found


async def test_ten_thousand_aborted_calls_leave_nothing(tmp_path: Path) -> None:
    chance = random.Random(0)

    async def queued(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        await start_stream(request)
        return await hang(engine, request, call)

    scripts = [hang, queued, pieces(event("x"), then="hang"), answer]

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        return await scripts[chance.randrange(4)](engine, request, call)

    async with fake_engine() as engine, gateway(tmp_path, engine, "--engine-calls", "60") as replica:
        engine.script = script
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(replica.url, connector=connector) as http:
            outcomes: Counter[str] = Counter()

            async def come_and_go(number: int) -> None:
                headers = {"x-autellix-session": f"s{number % 50}"} if number % 3 else {}
                try:
                    async with asyncio.timeout(chance.uniform(0.0, 0.3)):
                        body = {**CALL, "stream": bool(number % 2)}
                        async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
                            await response.read()
                            outcomes[str(response.status)] += 1
                except TimeoutError:
                    outcomes["aborted"] += 1

            sizes: list[float] = []
            files: list[int] = []
            while outcomes["aborted"] < ABORTS:
                await asyncio.gather(*(come_and_go(number) for number in range(100)))
                engine.calls.clear()
                if outcomes["aborted"] >= ABORTS * (len(sizes) + 1) / 10:
                    await all_is_free(http, engine)
                    sizes.append(resident_mib(replica))
                    files.append(open_files(replica))
            found = await all_is_free(http, engine)
            seen = sum(value for name, value in found.items() if name.startswith("autellix_controller_calls_total{"))
            print(f"outcomes {dict(outcomes)}, calls seen by the controller {seen:.0f}, MiB {sizes}, files {files}")
            assert set(outcomes) <= {"aborted", "200"}
            assert max(sizes[5:]) < max(sizes[:5]) * 1.1 + 4, "memory does not grow"
            assert max(files) < 400
            assert replica.readiness()[1]["degraded"] == []
        assert "defect" not in replica.log_text()


async def test_two_thousand_streams_at_once_need_flat_memory(tmp_path: Path) -> None:
    seconds, pause = 40, 0.5

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        response = await start_stream(request)
        for _ in range(int(seconds / pause)):
            await response.write(event("x" * 50))
            await asyncio.sleep(pause)
        await response.write(event(finish_reason="stop") + DONE)
        return response

    async with fake_engine() as engine, gateway(tmp_path, engine, "--engine-calls", "10000") as replica:
        engine.script = script
        async with aiohttp.ClientSession(replica.url, connector=aiohttp.TCPConnector(limit=0)) as http:

            async def stream(number: int) -> tuple[int, bool]:
                headers = {"x-autellix-session": f"s{number}"}
                body = {**CALL, "stream": True}
                async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
                    return response.status, (await response.read()).endswith(DONE)

            tasks = [asyncio.create_task(stream(number)) for number in range(STREAMS)]
            await eventually(lambda: engine.running == STREAMS, "all run at once", seconds=60)
            sizes = []
            while engine.running == STREAMS:
                sizes.append(resident_mib(replica))
                await asyncio.sleep(1)
            outcomes = Counter([await task for task in tasks])
            await all_is_free(http, engine)
        print(f"outcomes {dict(outcomes)}, MiB {sizes}, a stream {(sizes[-1] - 60) * 1024 / STREAMS:.0f} KiB")
        assert outcomes == {(200, True): STREAMS}
        assert len(sizes) > 5
        assert max(sizes) - min(sizes[1:]) < 0.1 * max(sizes), "flat while they run"
