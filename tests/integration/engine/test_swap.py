"""KV swapping in a real engine with a real (tiny) model: calls resume, programs come back, and the bytes are right."""

import itertools
from collections.abc import Iterator

import pytest

from autellix_engine.swap.settings import SwapSettings
from autellix_wire.context import ProgramContext
from support.swap_engine import SwapEngineBench, prompt

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

programs = (f"program {i}" for i in itertools.count())


@pytest.fixture(scope="module", params=[False, True], ids=["without prefix cache", "with prefix cache"])
def engine(request: pytest.FixtureRequest) -> Iterator[SwapEngineBench]:
    with SwapEngineBench(
        slots=2, blocks=60, settings=SwapSettings(size="64Mi"), enable_prefix_caching=request.param
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left(engine: SwapEngineBench) -> Iterator[None]:
    engine.forget_everything()
    yield
    engine.check_rest()


def served(name: str) -> ProgramContext:
    """A program that has been served a lot."""
    return ProgramContext(program=next(programs), call=name, service_ms=9_000_000.0)


def fresh(name: str) -> ProgramContext:
    return ProgramContext(program=next(programs), call=name)


def test_a_preempted_call_resumes_from_host_memory(engine: SwapEngineBench) -> None:
    alone = {name: engine.alone(name, prompt(name, 800), 60) for name in "ab"}
    engine.forget_everything()
    for name in "ab":
        engine.add(name, prompt(name, 800), 60, served(name))
    engine.run(until=lambda: len(engine.outputs.get("b", [])) >= 30)
    for name in ("x", "y"):  # take both slots and nearly all blocks
        engine.add(name, prompt(name, 850), 8, fresh(name))
    engine.run()

    assert {name: engine.outputs[name] for name in "ab"} == alone
    for name in "ab":
        record = engine.record(name)
        assert record.preemptions == 1
        assert record.recomputed_tokens < 32, "less than a block"
        assert engine.scheduled[name] == 859 + record.recomputed_tokens
        assert record.swapped_bytes > 26 * engine.connector.manager.block_bytes, "out, and in again what the GPU lost"
