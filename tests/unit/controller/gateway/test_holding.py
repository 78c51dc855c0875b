"""Calls that come while no engine serves, through a real server: held for one, or refused at once."""

import asyncio
import json
from typing import Any

import pytest

from autellix_controller.engines.engine import Endpoint
from support.fake_engine import MODEL, FakeEngine, answer, fake_engine, hang
from support.queueing import Gate, everything_is_free, queued, send, start
from support.running_controller import Replica, eventually, running_controller


def engines_are(replica: Replica, *engines: FakeEngine) -> None:
    """What discovery says when pods come and go."""
    replica.controller.fleet.replace([Endpoint(engine.name, engine.url) for engine in engines])


async def is_charged(replica: Replica, session: str) -> None:
    while not (await replica.json("GET", f"/v1/sessions/{session}"))[1]["calls"]:
        await asyncio.sleep(0.01)


async def test_calls_are_held_until_an_engine_comes_and_go_there_in_the_order_of_their_programs_service() -> None:
    gate = Gate()
    async with (
        fake_engine("a") as a,
        fake_engine("b") as b,
        running_controller(a, engine_calls=1, hold_seconds=60) as replica,
    ):
        for session, service_ms in (("much", 900.0), ("some", 400.0)):
            a.service_ms = service_ms
            await replica.chat(session)
            await is_charged(replica, session)
        engines_are(replica)
        tasks = [await start(replica, user, user) for user in ("much", "some", "new")]
        assert await replica.metric("autellix_controller_held_calls") == 3
        assert await replica.metric("autellix_controller_queued_calls") == 3
        assert replica.controller.readiness().ready, "or the Service would not route to it"
        b.script = gate
        engines_are(replica, b)
        await eventually(lambda: b.running == 1, "the first of them runs")
        assert await replica.metric("autellix_controller_held_calls") == 0
        assert await replica.metric("autellix_controller_queued_calls") == 2
        gate.open(3)
        assert await asyncio.gather(*tasks) == [200, 200, 200]
        assert gate.order == ["new", "some", "much"]
        assert await replica.metric("autellix_controller_queue_seconds_count") == 3
        b.script = answer
        response, _ = await replica.chat("much")
        assert response.headers["x-autellix-engine"] == "b", "its pin moved there"
        await everything_is_free(replica)


async def test_calls_are_held_as_well_while_the_engines_that_there_are_cannot_be_reached() -> None:
    async with fake_engine() as engine, running_controller(engine, hold_seconds=60) as replica:
        await engine.stop()
        await eventually(lambda: not any(e.available for e in replica.controller.fleet), "it is missed")
        task = await start(replica, "1")
        await engine.start()
        assert await task == 200
        await everything_is_free(replica)


async def test_by_default_calls_without_an_engine_are_refused_at_once() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engines_are(replica)
        response, body = await replica.chat()
        assert (response.status, response.headers["retry-after"]) == (503, "2")
        assert json.loads(body)["error"]["code"] == "no_engine"
        assert await replica.metric("autellix_controller_queue_seconds_count") == 0
        await everything_is_free(replica)


async def test_a_call_that_was_held_for_too_long_gets_what_it_would_have_got_at_once() -> None:
    async with fake_engine() as engine, running_controller(engine, hold_seconds=0.3) as replica:
        engines_are(replica)
        began = asyncio.get_running_loop().time()
        response, body = await replica.chat("s")
        assert asyncio.get_running_loop().time() - began >= 0.3
        assert (response.status, response.headers["retry-after"]) == (503, "2")
        assert json.loads(body)["error"]["code"] == "no_engine"
        assert await replica.metric("autellix_controller_queue_seconds_count") == 1
        await everything_is_free(replica)


async def test_a_client_that_leaves_while_its_call_is_held_leaves_nothing_behind() -> None:
    async with fake_engine() as engine, running_controller(engine, hold_seconds=60) as replica:
        engines_are(replica)
        tasks = [await start(replica, str(n), f"s{n}") for n in range(4)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await eventually(lambda: queued(replica) == 0, "they left the queue")
        await everything_is_free(replica)
        engines_are(replica, engine)
        assert await send(replica, "5") == 200
        assert len(engine.calls) == 1


async def test_held_calls_are_bounded_by_the_queue() -> None:
    async with fake_engine() as engine, running_controller(engine, hold_seconds=60, queue_calls=2) as replica:
        engines_are(replica)
        held = [await start(replica, str(n)) for n in range(2)]
        response, body = await replica.chat()
        assert (response.status, json.loads(body)["error"]["param"]) == (429, "queue_calls")
        engines_are(replica, engine)
        assert await asyncio.gather(*held) == [200, 200]
        await everything_is_free(replica)


async def test_a_model_that_no_engine_has_is_held_while_none_is_known_and_told_when_one_is() -> None:
    async with fake_engine() as engine, running_controller(engine, hold_seconds=60) as replica:
        assert (await replica.chat(model="other"))[0].status == 404
        engines_are(replica)
        right, wrong = (asyncio.create_task(replica.chat(model=model)) for model in (MODEL, "other"))
        await eventually(lambda: queued(replica) == 2, "both are held")
        engines_are(replica, engine)
        async with asyncio.timeout(60):
            response, body = await wrong
        assert (response.status, json.loads(body)["error"]["code"]) == (404, "model_not_found")
        assert (await right)[0].status == 200
        await everything_is_free(replica)


async def test_a_call_that_its_only_engine_failed_is_not_held_but_told() -> None:
    async with fake_engine() as engine, running_controller(engine, hold_seconds=60, probe_seconds=60) as replica:
        await engine.stop()
        response, body = await replica.chat()
        assert (response.status, json.loads(body)["error"]["code"]) == (503, "no_engine")
        assert await replica.metric("autellix_controller_queue_seconds_count") == 0
        await everything_is_free(replica)


@pytest.mark.parametrize("held", [False, True], ids=["waited for room", "was held"])
async def test_time_without_engines_and_time_without_room_are_bounded_apart(held: bool) -> None:
    settings: dict[str, Any] = {"engine_calls": 1, "hold_seconds": 60, "queue_seconds": 0.5}
    async with fake_engine() as engine, running_controller(engine, **settings) as replica:
        engine.script = hang
        if held:
            engines_are(replica)
        first = await start(replica, "1")
        second = asyncio.create_task(replica.chat())
        await eventually(lambda: queued(replica) == 1 + held, "it waits")
        if held:
            await asyncio.sleep(1)  # longer than it may wait for room
            assert queued(replica) == 2
            engines_are(replica, engine)
        response, body = await second
        assert (response.status, json.loads(body)["error"]["param"]) == (429, "queue_seconds")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await everything_is_free(replica)
