"""The scheduler in a real engine with a real (tiny) model, step by step."""

import itertools
import random
from collections.abc import Iterator

import pytest

from autellix_wire.context import ProgramContext
from support.in_process_engine import InProcessEngine

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def prompt(seed: str, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(10, 1_500) for _ in range(length)]


programs = (f"program {i}" for i in itertools.count())  # the engine remembers those of earlier tests


def served(name: str) -> ProgramContext:
    """A program that has been served a lot."""
    return ProgramContext(program=next(programs), call=f"call of {name}", service_ms=9_000_000.0)


def fresh(name: str) -> ProgramContext:
    return ProgramContext(program=next(programs), call=f"call of {name}")


@pytest.fixture(autouse=True)
def idle_afterwards(engine: InProcessEngine) -> Iterator[None]:
    """Every test begins and ends with an engine that has nothing to do, and a core that says so."""
    yield
    engine.run()
    engine.scheduler.core.check_integrity()
    assert len(engine.scheduler.core) == 0
    engine.outputs.clear()
    engine.finish_reasons.clear()


def in_batch(engine: InProcessEngine, name: str) -> bool:
    return any(call.key.startswith(name) for call in engine.scheduler.core.running())


def test_a_short_call_gets_its_slot_in_the_step_after_it_arrives_and_victims_lose_nothing(
    engine: InProcessEngine,
) -> None:
    alone = {name: engine.alone(name, prompt(name, 300), 80) for name in ("a", "b")}
    alone["short"] = engine.alone("short", prompt("short", 20), 5)
    preemptions = engine.scheduler.core.counts["preemptions_policy"]

    for name in ("a", "b"):
        engine.add(name, prompt(name, 300), 80, served(name))
    engine.run(until=lambda: len(engine.outputs.get("b", [])) >= 20)
    engine.add("short", prompt("short", 20), 5, fresh("short"))
    engine.step()
    assert len(engine.outputs["short"]) == 1, "its first token comes with the first step"
    engine.run()

    assert engine.scheduler.core.counts["preemptions_policy"] == preemptions + 1
    assert engine.outputs == alone


def test_a_call_preempted_again_and_again_ends_with_the_same_output(engine: InProcessEngine) -> None:
    alone = engine.alone("long", prompt("long", 400), 60)
    preemptions = engine.scheduler.core.counts["preemptions_policy"]
    for name in ("long", "other"):
        engine.add(name, prompt(name, 400), 60, served(name))
    for i in range(6):
        engine.run(until=lambda: len(engine.outputs.get("long", [])) >= 8 * (i + 1))  # noqa: B023
        for name in (f"x{i}", f"y{i}"):
            engine.add(name, prompt(name, 30), 3, fresh(name))
        engine.run(until=lambda: {f"x{i}", f"y{i}"} <= engine.finish_reasons.keys())  # noqa: B023
    engine.run()
    assert engine.scheduler.core.counts["preemptions_policy"] >= preemptions + 10
    assert engine.outputs["long"] == alone


def test_when_memory_runs_out_the_better_call_stays_and_all_end_right(engine: InProcessEngine) -> None:
    """60 blocks of 32 tokens; two calls begin with 29 each and grow to 32."""
    alone = {name: engine.alone(name, prompt(name, 920), 80) for name in ("better", "worse")}
    forced = engine.scheduler.core.counts["preemptions_memory"]
    engine.add("worse", prompt("worse", 920), 80, served("worse"))
    engine.step()
    engine.add("better", prompt("better", 920), 80, fresh("better"))
    engine.run(until=lambda: engine.scheduler.core.counts["preemptions_memory"] > forced)
    assert in_batch(engine, "better")
    assert not in_batch(engine, "worse")
    engine.run()
    assert engine.outputs == alone


@pytest.mark.parametrize("state", ["waiting", "running", "preempted", "finished"])
def test_an_abort_in_any_state_frees_everything(engine: InProcessEngine, state: str) -> None:
    free = engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    for name in ("a", "b"):
        engine.add(name, prompt(name, 100), 40, served(name))
    engine.run(until=lambda: len(engine.outputs.get("b", [])) >= 5)
    engine.add("better", prompt("better", 20), 20, fresh("better"))
    engine.add("worst", prompt("worst", 20), 20, served("worst"))
    engine.run(until=lambda: len(engine.outputs.get("better", [])) >= 2)
    (preempted,) = [call.key for call in engine.scheduler.core.waiting() if call.preemptions]
    match state:
        case "waiting":
            engine.abort("worst")
        case "running":
            engine.abort("better")
        case "preempted":
            engine.abort(preempted[0])  # vLLM's own key begins with ours
        case "finished":
            engine.run(until=lambda: "better" in engine.finish_reasons)
            engine.abort("better")
    engine.run()
    assert engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
    assert len(engine.outputs.get("worst", [])) == (0 if state == "waiting" else 20)


def test_several_outputs_of_one_request_are_several_calls_of_one_program(engine: InProcessEngine) -> None:
    context = fresh("many")
    engine.add("many", prompt("many", 30), 6, context, n=3, temperature=1.0, seed=1)
    engine.run()
    assert engine.scheduler.core.programs.get(context.program).calls == 3


def test_the_settings_reach_the_scheduler(engine: InProcessEngine) -> None:
    assert engine.scheduler.core.settings.queue_bounds_ms == (600_000, 6_000_000)
