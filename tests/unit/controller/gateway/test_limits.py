"""Bounds of engines and tenants through a real server: who waits, who goes first, who is told to come back."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from support.fake_engine import Call, FakeEngine, answer, completion, fake_engine, hang
from support.queueing import Gate, everything_is_free, queued, send, start
from support.running_controller import eventually, running_controller


async def test_calls_wait_for_room_on_engines_and_the_program_with_least_service_goes_first() -> None:
    gate = Gate()
    async with fake_engine() as engine, running_controller(engine, engine_calls=1) as replica:
        engine.service_ms = 500.0
        await replica.chat("served")
        await eventually(lambda: len(engine.kept) == 1, "its record is out")

        async def charged() -> bool:
            return bool((await replica.json("GET", "/v1/sessions/served"))[1]["calls"])

        while not await charged():
            await asyncio.sleep(0.01)
        engine.script = gate
        tasks = [await start(replica, user, session) for user, session in (("1", None), ("2", "served"), ("3", "new"))]
        assert queued(replica) == 2
        assert await replica.metric("autellix_controller_queued_calls") == 2
        gate.open(3)
        assert await asyncio.gather(*tasks) == [200, 200, 200]
        assert gate.order == ["1", "3", "2"]
        assert await replica.metric("autellix_controller_queue_seconds_count") == 2
        await everything_is_free(replica)


async def test_an_engine_never_gets_more_than_its_bound_though_all_calls_have_one_pin() -> None:
    most = 0

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        nonlocal most
        most = max(most, a.running, b.running)
        await asyncio.sleep(0.01)
        return web.json_response(completion())

    async with (
        fake_engine("a") as a,
        fake_engine("b") as b,
        running_controller(a, b, engine_calls=3, spill_calls=1000) as replica,
    ):
        a.script = b.script = script
        answers = await asyncio.gather(*(replica.chat("s1") for _ in range(60)))
        assert {response.status for response, _ in answers} == {200}
        assert most == 3
        assert {response.headers["x-autellix-route"] for response, _ in answers} >= {"pinned", "spilled"}
        await everything_is_free(replica)


async def test_a_call_for_an_idle_engine_passes_those_that_wait_for_a_busy_one() -> None:
    async with (
        fake_engine(model="m1") as a,
        fake_engine(model="m2") as b,
        running_controller(a, b, engine_calls=1) as replica,
    ):
        a.script = hang
        running = [asyncio.create_task(replica.chat(model="m1")) for _ in range(3)]
        await eventually(lambda: queued(replica) == 2, "two wait")
        response, _ = await replica.chat(model="m2")
        assert response.status == 200
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await everything_is_free(replica)


async def test_who_waits_too_long_is_told_to_come_back() -> None:
    async with fake_engine() as engine, running_controller(engine, engine_calls=1, queue_seconds=0.2) as replica:
        engine.script = hang
        running = await start(replica, "1")
        response, body = await replica.chat()
        error = json.loads(body)["error"]
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert (error["code"], error["param"]) == ("contended", "queue_seconds")
        assert await replica.metric('autellix_controller_refused_calls_total{bound="queue_seconds"}') == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await everything_is_free(replica)


async def test_a_full_queue_gives_up_the_last_call_of_the_tenant_that_has_most_there(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    gate = Gate()
    settings: dict[str, Any] = {"api_keys_file": keys, "engine_calls": 1, "queue_calls": 3}
    async with fake_engine() as engine, running_controller(engine, **settings) as replica:
        engine.script = gate
        alice = [await start(replica, f"a{n}", key="key-of-alice") for n in range(4)]
        assert await send(replica, "a4", key="key-of-alice") == 429
        bob = asyncio.create_task(send(replica, "b0", key="key-of-bob"))
        assert await alice[3] == 429, "the queue was full of alice's"
        gate.open(4)
        assert await asyncio.gather(*alice[:3], bob) == [200] * 4
        assert gate.order == ["a0", "b0", "a1", "a2"], "bob had none running"
        await everything_is_free(replica)


async def test_a_tenant_runs_as_many_calls_as_it_may_and_more_wait_without_holding_up_others(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice calls=2\nbob:key-of-bob\n")
    gate = Gate()
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys) as replica:
        engine.script = gate
        alice = [await start(replica, f"a{n}", key="key-of-alice") for n in range(4)]
        bob = await start(replica, "b0", key="key-of-bob")
        await eventually(lambda: len(gate.order) == 3, "two of alice's and bob's run")
        assert (gate.order, queued(replica)) == (["a0", "a1", "b0"], 2)
        # Read again while calls wait: the new limit counts for them.
        keys.write_text("alice:key-of-alice calls=3\nbob:key-of-bob\n")
        await eventually(lambda: len(gate.order) == 4, "the third of alice's runs")
        gate.open(5)
        assert await asyncio.gather(*alice, bob) == [200] * 5
        await everything_is_free(replica)


async def test_a_client_that_leaves_the_queue_leaves_nothing_behind() -> None:
    async with fake_engine() as engine, running_controller(engine, engine_calls=1) as replica:
        engine.script = hang
        tasks = [await start(replica, str(n), f"s{n}") for n in range(5)]
        assert queued(replica) == 4
        for task in tasks[1:]:
            task.cancel()
        await eventually(lambda: queued(replica) == 0, "they left the queue")
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await everything_is_free(replica)
        engine.script = answer
        assert (await replica.chat())[0].status == 200
        assert len(engine.calls) == 2


async def test_calls_that_wait_go_to_an_engine_that_comes_into_rotation_meanwhile() -> None:
    async with (
        fake_engine("a") as a,
        fake_engine("b") as b,
        running_controller(a, b, engine_calls=1) as replica,
    ):
        b.healthy = False
        await eventually(lambda: sum(e.in_rotation for e in replica.controller.fleet) == 1, "one is out")
        a.script = hang
        first = asyncio.create_task(replica.chat())
        await eventually(lambda: a.running == 1, "it runs")
        second = asyncio.create_task(replica.chat())
        await eventually(lambda: queued(replica) == 1, "it waits")
        b.healthy = True
        assert (await second)[0].status == 200
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize(
    ("limit", "param"),
    [("requests_per_minute=2", "requests_per_minute"), ("tokens_per_minute=2", "tokens_per_minute")],
)
async def test_what_a_key_may_do_in_a_minute_is_bounded(tmp_path: Path, limit: str, param: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice:key-of-alice {limit}\nbob:key-of-bob\n")
    headers = {"authorization": "Bearer key-of-alice"}
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys, headers=headers) as replica:
        while (answered := await replica.chat(stream=True))[0].status == 200:
            pass
        response, body = answered
        assert response.status == 429
        assert int(response.headers["retry-after"]) >= 1
        error = json.loads(body)["error"]
        assert (error["code"], error["param"]) == ("rate_limit_exceeded", param)
        assert len(engine.calls) == (2 if param == "requests_per_minute" else 1)
        async with aiohttp.ClientSession(replica.url, headers={"authorization": "Bearer key-of-bob"}) as bob:
            for _ in range(3):
                async with bob.post("/v1/chat/completions", json=replica.call()) as other:
                    assert other.status == 200
        await everything_is_free(replica)


async def test_a_key_opens_as_many_sessions_as_it_may(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice programs=2\n")
    headers = {"authorization": "Bearer key-of-alice"}
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys, headers=headers) as replica:
        answers = await asyncio.gather(*(replica.chat(f"s{n}") for n in range(6)))
        assert sorted(response.status for response, _ in answers) == [200] * 2 + [429] * 4
        _, page = await replica.json("GET", "/v1/sessions")
        one, two = (session["id"] for session in page["data"])
        assert (await replica.chat(one))[0].status == 200
        status, refused = await replica.json("POST", "/v1/sessions", json={"id": "more"})
        assert (status, refused["error"]["param"]) == (429, "programs")
        assert (await replica.chat())[0].status == 200, "a call without session is no live program"
        await replica.json("DELETE", f"/v1/sessions/{two}")
        assert (await replica.json("POST", "/v1/sessions", json={"id": "more"}))[0] == 200


async def test_sessions_that_were_left_alone_make_room_for_others_though_nothing_else_happens(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ci:key-of-ci programs=2\n")
    settings: dict[str, Any] = {"api_keys_file": keys, "session_timeout_seconds": 1.0}
    headers = {"authorization": "Bearer key-of-ci"}
    async with fake_engine() as engine, running_controller(engine, headers=headers, **settings) as replica:

        async def opened(*names: str) -> list[int]:
            return [(await replica.json("POST", "/v1/sessions", json={"id": name}))[0] for name in names]

        assert await opened("first", "second", "third") == [200, 200, 429]
        await asyncio.sleep(1.1)
        assert await opened("fourth", "fifth", "sixth") == [200, 200, 429]


async def test_no_tenant_takes_all_places_at_the_front_door(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    gate = Gate()
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys, max_calls=16) as replica:
        engine.script = gate
        alice = [asyncio.create_task(send(replica, f"a{n}", key="key-of-alice")) for n in range(30)]
        await eventually(lambda: sum(task.done() for task in alice) == 18, "what is too much was refused")
        assert replica.controller.gateway.running == 12
        bob = await start(replica, "b0", key="key-of-bob")
        assert await replica.metric('autellix_controller_refused_calls_total{bound="max_calls"}') == 18
        gate.open(40)
        assert sorted(await asyncio.gather(*alice, bob)) == [200] * 13 + [429] * 18
        await everything_is_free(replica)


async def test_bodies_that_are_only_announced_take_room_from_nobody(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    settings: dict[str, Any] = {"body_limit_bytes": 4096, "bodies_limit_bytes": 8192, "api_keys_file": keys}
    async with fake_engine() as engine, running_controller(engine, **settings) as replica:
        clients = []
        for _ in range(8):
            _, writer = await asyncio.open_connection(replica.settings.host, URL(replica.url).port)
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-of-alice\r\n"
                b"Content-Type: application/json\r\nContent-Length: 4096\r\n\r\n{"
            )
            clients.append(writer)
        await eventually(lambda: replica.controller.gateway.running == 8, "they have announced 32 KiB")
        assert replica.controller.gateway.body_bytes == 8
        assert await send(replica, "b", key="key-of-bob") == 200
        for writer in clients:
            writer.close()
        await everything_is_free(replica)


async def test_no_tenant_takes_all_bytes_of_bodies(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    gate = Gate()
    settings: dict[str, Any] = {"body_limit_bytes": 4096, "bodies_limit_bytes": 16_000, "api_keys_file": keys}
    async with fake_engine() as engine, running_controller(engine, **settings) as replica:
        engine.script = gate

        async def large(user: str) -> int:
            headers = {"authorization": f"Bearer key-of-{user}"}
            call = replica.call(user=user, pad="x" * 900)
            async with replica.http.post("/v1/chat/completions", json=call, headers=headers) as response:
                return response.status

        alice = [asyncio.create_task(large("alice")) for _ in range(30)]
        await eventually(lambda: len(gate.order) + sum(task.done() for task in alice) == 30, "served or refused")
        held = replica.controller.gateway.body_bytes
        assert 10_500 < held <= 12_000, "three quarters at most"
        bob = asyncio.create_task(large("bob"))
        await eventually(lambda: replica.controller.gateway.body_bytes > held, "bob's fits in")
        gate.open(40)
        assert await bob == 200
        assert set(await asyncio.gather(*alice)) == {200, 429}
        await everything_is_free(replica)


async def test_bodies_in_flight_are_bounded_in_all() -> None:
    settings: dict[str, Any] = {"body_limit_bytes": 4096, "bodies_limit_bytes": 6000}
    async with fake_engine() as engine, running_controller(engine, **settings) as replica:
        engine.script = hang
        running = asyncio.create_task(replica.chat(pad="x" * 3500))
        await eventually(lambda: engine.running == 1, "it runs")
        response, body = await replica.chat(pad="x" * 3500)
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert json.loads(body)["error"]["param"] == "bodies_limit_bytes"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await everything_is_free(replica)
