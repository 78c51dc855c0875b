"""The proof that ``helm test`` runs, in front of scripted engines behind a real controller."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from autellix_controller.__main__ import main
from autellix_controller.proof import Answer, Plan, Unproven, judge, prove
from autellix_wire import headers
from support.fake_engine import DONE, Call, FakeEngine, Script, event, fake_engine, pieces, start_stream, status
from support.running_controller import running_controller

RECEIPT = {headers.PROGRAM: "p", headers.ENGINE: "e-1", headers.ROUTE: "pinned", headers.REQUEST_ID: "r"}
SESSION = {"engine": "e-1", "service_ms": 12.5, "calls": 2}
PLAN = Plan(run="try", long_calls=2, long_tokens=64, seconds=20)


def answer(end: float, **receipt: str) -> Answer:
    return Answer(receipt={**RECEIPT, **receipt}, end=end)


def test_a_short_program_that_ends_first_on_one_engine_with_receipts_is_the_promise() -> None:
    found = judge([answer(0.2), answer(0.3)], [answer(5.0), answer(4.0)], SESSION)
    assert [line.partition(":")[0] for line in found] == [
        "the short program ended first",
        "its 2 calls kept their pin",
        "every answer brought its receipt; the program was charged 12 ms",
    ]


@pytest.mark.parametrize(
    ("short", "session", "problem"),
    [
        ([answer(0.2), answer(4.5)], {}, r"short program ended after 4\.50 s, a long call before it after 4\.00 s"),
        ([answer(0.2), answer(0.3, **{headers.ENGINE: "e-2"})], {}, "was on e-1, e-2"),
        ([answer(0.2), answer(0.3)], {"engine": "e-2"}, "pinned to e-2"),
        ([answer(0.2), answer(0.3, **{headers.ROUTE: ""})], {}, "receipt: x-autellix-route is missing"),
        ([answer(0.2), answer(0.3)], {"service_ms": 0}, "charged nothing"),
    ],
)
def test_what_breaks_the_promise_is_named(short: list[Answer], session: dict[str, Any], problem: str) -> None:
    with pytest.raises(Unproven, match=problem):
        judge(short, [answer(4.0)], {**SESSION, **session})


def least_served_first() -> Script:
    """As an engine does that runs the short program first: long calls end a while after it."""
    short_ended = asyncio.Semaphore(0)
    short_calls: list[Call] = []

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        response = await start_stream(request)
        await response.write(event("once"))
        if call.body["max_tokens"] >= PLAN.long_tokens:
            await short_ended.acquire()
            await asyncio.sleep(0.3)
        else:
            short_calls.append(call)
        await response.write(event(" upon", finish_reason="length") + DONE)
        if len(short_calls) == 2:
            for _ in range(PLAN.long_calls):
                short_ended.release()
        return response

    return script


async def test_a_cluster_that_keeps_its_promise_is_proved_and_its_sessions_end() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = least_served_first()
        found = await prove(f"{replica.url}/v1", None, PLAN)
        assert len(found) == 3
        assert all(call.body["ignore_eos"] for call in engine.calls)
        assert (await replica.json("GET", "/v1/sessions"))[1]["data"] == []


async def test_what_came_out_of_order_is_tried_again_with_longer_calls() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        at_once, in_order = pieces(event("once"), event(finish_reason="length"), DONE), least_served_first()

        async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
            first_round = len(engine.calls) <= PLAN.long_calls + 2
            return await (at_once if first_round else in_order)(engine, request, call)

        engine.script = script
        found = await prove(f"{replica.url}/v1", None, PLAN)
        assert found[0].startswith("the short program ended first")
        assert sorted(call.body["max_tokens"] for call in engine.calls) == [8] * 4 + [64] * 2 + [128] * 2
        assert (await replica.json("GET", "/v1/sessions"))[1]["data"] == []


async def test_a_cluster_that_ends_long_calls_first_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        with pytest.raises(SystemExit) as ended:
            await asyncio.to_thread(main, ["prove", f"{replica.url}/v1", "--long-calls", "1"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("autellix-controller: not proved: the short program ended after")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (status(400), r"POST /v1/chat/completions was answered 400"),
        (pieces(event("once"), then="cut"), "a stream broke"),
        (pieces(event(finish_reason="stop"), DONE), "ended without a token"),
    ],
)
async def test_calls_that_fail_are_said(script: Any, problem: str) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        with pytest.raises(Unproven, match=problem):
            await prove(f"{replica.url}/v1", None, PLAN)


async def test_a_cluster_that_cannot_be_reached_is_said() -> None:
    with pytest.raises(Unproven, match=r"127\.0\.0\.1:1"):
        await prove("http://127.0.0.1:1/v1", None, PLAN)


async def test_a_key_is_sent_and_a_cluster_without_answer_given_up(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("me:a-long-secret\n")
    async with fake_engine() as engine, running_controller(engine, api_keys_file=str(keys)) as replica:
        with pytest.raises(Unproven, match="401"):
            await prove(f"{replica.url}/v1", "wrong", PLAN)
        engine.script = pieces(event("once"), then="hang")
        with pytest.raises(Unproven, match=r"not within 0\.5 s"):
            await prove(f"{replica.url}/v1", "a-long-secret", Plan(run="try", long_calls=1, long_tokens=9, seconds=0.5))
