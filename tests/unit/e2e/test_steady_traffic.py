"""The judge of end-to-end traffic: what it must find, and what it must let pass."""

import pytest
from openai import AsyncOpenAI

from support.fake_engine import MODEL, cut, fake_engine
from support.running_controller import running_controller
from support.steady_traffic import Habits, Sent, SteadyTraffic, Window

QUICK = Habits(agents=2, turns=3, thinking_seconds=0.0, max_tokens=(4,))


def sent(program: str, started: float, engine: str, **fields: str) -> Sent:
    return Sent(program=program, started=started, ended=started + 1, engine=engine, **fields)


def window(*calls: Sent) -> Window:
    return Window(what="a change", started=10, ended=20, calls=calls)


def test_a_program_that_leaves_an_engine_that_stayed_moved_needlessly() -> None:
    found = window(sent("p", 5, "a"), sent("p", 12, "b", route="spilled"))
    (move,) = found.needless_moves()
    assert (move.program, move.left, move.to, move.route, move.ended) == ("p", "a", "b", "spilled", 13)
    assert len(found.moves()) == 1


def test_a_program_may_leave_an_engine_once_that_leaves_but_not_before() -> None:
    found = window(sent("p", 5, "a"), sent("p", 12, "b"))
    assert found.needless_moves({"a": 12.5}) == []
    assert len(found.needless_moves({"a": 14.0})) == len(found.needless_moves({"b": 1.0})) == 1


def test_moves_before_the_change_and_calls_that_failed_are_no_moves() -> None:
    early = window(sent("p", 1, "a"), sent("p", 5, "b"), sent("p", 12, "b"))
    failed = window(sent("p", 5, "a"), sent("p", 11, "", failure="x"), sent("p", 13, "a"))
    assert early.moves() == failed.moves() == []


def test_programs_that_began_within_the_change_can_be_left_out() -> None:
    found = window(sent("new", 11, "a"), sent("new", 13, "b"))
    assert len(found.needless_moves()) == 1
    assert found.needless_moves(of_programs_before=True) == []


def test_failures_count_from_the_beginning_of_the_change_to_its_end() -> None:
    found = window(*(sent("p", started, "", failure="x") for started in (2, 9.5, 15, 25)))
    assert [call.started for call in found.failures] == [9.5, 15]
    assert str(found) == (
        "a change: 2 calls in 10 s, the slowest took 1.0 s (sent at -0.5 s), 2 failed, 0 programs moved"
    )


async def test_traffic_is_seen_as_the_clients_saw_it() -> None:
    async with (
        fake_engine() as engine,
        running_controller(engine) as replica,
        AsyncOpenAI(base_url=f"{replica.url}/v1", api_key="x", max_retries=0) as client,
        SteadyTraffic(client, MODEL, QUICK).running() as traffic,
    ):
        async with traffic.window("nothing happens") as quiet:
            await traffic.more(6)
        async with traffic.window("the engine breaks") as broken:
            engine.script = cut
            await traffic.more(4)
        with pytest.raises(TimeoutError):
            await traffic.more(10_000, seconds=0.05)
    assert quiet.failures == []
    assert quiet.moves() == []
    assert {call.engine for call in quiet.inside} == {engine.url.removeprefix("http://")}
    assert len(broken.failures) >= 4
    assert all("502" in call.failure or "engine" in call.failure for call in broken.failures)
