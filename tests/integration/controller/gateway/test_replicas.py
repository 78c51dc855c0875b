"""Several replicas over one etcd."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autellix_controller.__main__ import main
from autellix_controller.table.reader import read_programs
from support.controller_process import ControllerProcess, controller_process
from support.etcd import Etcd, running_etcd
from support.fake_engine import FakeEngine, fake_engine, hang
from support.ports import free_ports
from support.running_controller import eventually


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
async def engines() -> AsyncIterator[list[FakeEngine]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(fake_engine(f"engine-{name}")) for name in "abc"]


@pytest.fixture
async def replicas(
    etcd: Etcd, engines: list[FakeEngine], tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[list[ControllerProcess]]:
    """Two replicas that start together."""
    arguments = [part for engine in engines for part in ("--engine", engine.url)]
    arguments += ["--table", etcd.url, "--table-prefix", prefix(request.node.name)]
    async with AsyncExitStack() as stack:
        found = []
        for number, port in enumerate(free_ports(2)):
            named = [*arguments, "--replica", f"replica-{number}"]
            replica = stack.enter_context(controller_process(tmp_path, port, *named, ready=False))
            found.append(replica)
        await asyncio.gather(*(asyncio.to_thread(replica.wait_ready) for replica in found))
        yield found


def prefix(test: str) -> str:
    return f"/autellix/tests/{test}"


async def chat(replica: ControllerProcess, session: str) -> str:
    """Makes one call; the engine that served it."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-autellix-session": session}
    async with (
        aiohttp.ClientSession() as http,
        http.post(replica.url + "/v1/chat/completions", json=body, headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        return response.headers["x-autellix-engine"]


async def session_of(replica: ControllerProcess, name: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{replica.url}/v1/sessions/{name}") as response:
        found: dict[str, Any] = await response.json()
        return found


async def table_connected(replica: ControllerProcess) -> float:
    async with aiohttp.ClientSession() as http, http.get(replica.url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("autellix_controller_table_connected "))


async def agree(check: Callable[[], Any], seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.05)


async def test_turns_through_different_replicas_meet_one_engine_and_one_account(
    replicas: list[ControllerProcess], engines: list[FakeEngine]
) -> None:
    one, two = replicas
    served = set()
    for turn in range(6):

        async def charged(turn: int = turn) -> bool:
            found = [await session_of(replica, "s1") for replica in replicas]
            return turn == 0 or [session.get("calls") for session in found] == [turn, turn]

        await agree(charged)
        served.add(await chat((one, two)[turn % 2], "s1"))
    assert len(served) == 1
    calls = next(engine.calls for engine in engines if engine.calls)
    assert [call.xargs["autellix_service_ms"] for call in calls] == [100 * turn for turn in range(6)]
    assert len({call.xargs["autellix_program"] for call in calls}) == 1
    assert [call.xargs["autellix_replica"] for call in calls] == ["replica-0", "replica-1"] * 3


async def test_first_calls_at_once_through_both_replicas_get_one_pin(replicas: list[ControllerProcess]) -> None:
    for number in range(10):
        served = await asyncio.gather(*(chat(replicas[n % 2], f"p{number}") for n in range(8)))
        assert len(set(served)) == 1


async def test_a_dead_engine_loses_its_pin_for_all_replicas(
    replicas: list[ControllerProcess], engines: list[FakeEngine]
) -> None:
    one, two = replicas
    first = await chat(one, "s1")
    await next(engine for engine in engines if engine.url.endswith(first)).stop()
    second = await chat(one, "s1")
    assert second != first

    async def moved() -> bool:
        return bool((await session_of(two, "s1"))["engine"] == second)

    await agree(moved)
    assert await chat(two, "s1") == second


async def test_a_killed_replica_takes_neither_pins_nor_service_along(
    replicas: list[ControllerProcess], engines: list[FakeEngine]
) -> None:
    one, two = replicas
    served = {name: await chat(one, name) for name in (f"s{n}" for n in range(10))}
    one.kill()  # whatever it had not written yet, the other has to make good

    async def charged() -> bool:
        found = [await session_of(two, name) for name in served]
        return all(session.get("service_ms") == 100 for session in found)

    await agree(charged)
    for name, engine in served.items():
        assert await chat(two, name) == engine


async def test_a_session_ended_at_one_replica_is_gone_at_the_other(
    replicas: list[ControllerProcess], engines: list[FakeEngine]
) -> None:
    one, two = replicas
    await chat(one, "s1")
    async with aiohttp.ClientSession() as http, http.delete(one.url + "/v1/sessions/s1") as response:
        assert response.status == 200

    async def gone() -> bool:
        return bool((await session_of(two, "s1")).get("error", {}).get("code") == "session_not_found")

    await agree(gone)
    await eventually(lambda: all(len(engine.ended_programs) == 1 for engine in engines), "the engines forget it")


async def test_the_process_table_prints_for_people_and_for_programs(
    replicas: list[ControllerProcess],
    etcd: Etcd,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = await chat(replicas[0], "agent-1")

    async def charged() -> bool:
        return bool((await session_of(replicas[1], "agent-1")).get("calls") == 1)

    await agree(charged)
    arguments = ["programs", "--table", etcd.url, "--table-prefix", prefix(request.node.name)]
    await asyncio.to_thread(main, arguments)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:6] == ["SESSION", "OWNER", "STATE", "ENGINE", "CALLS", "SERVICE"]
    assert line.split()[:6] == ["agent-1", "anonymous", "active", engine, "1", "0.1s"]
    await asyncio.to_thread(main, [*arguments, "-o", "json"])
    (described,) = json.loads(capsys.readouterr().out)
    assert (described["id"], described["engine"], described["service_ms"]) == ("agent-1", engine, 100)


async def test_traffic_goes_on_while_etcd_is_away(engines: list[FakeEngine], tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd") as own:
        arguments = [part for engine in engines for part in ("--engine", engine.url)]
        arguments += ["--table", own.url, "--table-prefix", prefix("away")]
        with controller_process(tmp_path, free_ports(1)[0], *arguments, ready=False) as replica:
            await asyncio.to_thread(replica.wait_ready)
            pinned = await chat(replica, "s1")
            own.kill()
            assert await chat(replica, "s1") == pinned
            await chat(replica, "new")

            async def degraded() -> bool:
                status, state = await asyncio.to_thread(replica.readiness)
                return status == 200 and any(line.startswith("process table: ") for line in state["degraded"])

            await agree(degraded)
            assert await table_connected(replica) == 0
            async with aiohttp.ClientSession() as http, http.delete(replica.url + "/v1/sessions/s1") as response:
                assert response.status == 503
                assert (await response.json())["error"]["code"] == "table_unavailable"
            await asyncio.to_thread(own.start)

            async def well() -> bool:
                return bool((await asyncio.to_thread(replica.readiness))[1]["degraded"] == [])

            await agree(well)
            assert await table_connected(replica) == 1
            replica.terminate()
            assert await asyncio.to_thread(replica.process.wait, 90) == 0
            found = {entry.session: entry for entry in await read_programs(own.url, prefix("away"))}
            assert found["s1"].engine == pinned
            assert (found["s1"].calls, found["new"].calls) == (2, 1)


async def test_ending_a_session_ends_the_calls_that_other_replicas_run_if_asked_to(
    replicas: list[ControllerProcess], engines: list[FakeEngine]
) -> None:
    for engine in engines:
        engine.script = hang
    body = {"model": "tiny", "messages": []}
    async with aiohttp.ClientSession() as http:

        async def call(session: str) -> tuple[int, str]:
            headers = {"x-autellix-session": session}
            url = replicas[0].url + "/v1/chat/completions"
            async with http.post(url, json=body, headers=headers) as response:
                return response.status, (await response.json())["error"]["code"]

        calls = [asyncio.create_task(call(name)) for name in ("ended", "ended", "other")]
        await eventually(lambda: sum(engine.running for engine in engines) == 3, "three calls run")
        async with asyncio.timeout(60):
            while "error" in await session_of(replicas[1], "ended"):
                await asyncio.sleep(0.05)
        async with http.delete(f"{replicas[1].url}/v1/sessions/ended?cancel_calls=true") as response:
            assert (response.status, (await response.json())["cancelled_calls"]) == (200, 0)
        async with asyncio.timeout(60):
            assert await asyncio.gather(*calls[:2]) == [(409, "session_ended")] * 2
        await eventually(lambda: sum(engine.running for engine in engines) == 1, "the other program's call runs on")
        calls[2].cancel()
        await asyncio.gather(calls[2], return_exceptions=True)
