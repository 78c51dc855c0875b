"""The scheduler class with vLLM's real objects and no model; and one in-process engine for the tests that need one."""

from collections.abc import Iterator

import pytest

from support.in_process_engine import InProcessEngine
from support.scheduler_bench import Bench, MakeBench


@pytest.fixture
def make() -> MakeBench:
    return Bench


@pytest.fixture(scope="session")
def make_bench() -> MakeBench:
    """The same, for tests that make several."""
    return Bench


@pytest.fixture(params=[1, 2], ids=["sync", "async"])
def depth(request: pytest.FixtureRequest) -> int:
    """Outputs in flight: 1 as with synchronous, 2 as with asynchronous scheduling."""
    return int(request.param)


@pytest.fixture(scope="session")
def engine() -> Iterator[InProcessEngine]:
    """A real engine with the tiny model: two slots, 60 blocks of 32 tokens, PLAS.

    The bounds are so far apart that no call leaves its level, however slow the machine: time is real here.
    """
    with InProcessEngine(
        slots=2,
        blocks=60,
        scheduling={"queue_bounds_ms": [600_000, 6_000_000], "min_run_ms": 0, "max_preemptions_per_step": 2},
    ) as running:
        yield running
