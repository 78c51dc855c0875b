"""The work of the core follows what changes, not how many wait. Work is counted, not timed: ``make bench-scheduler``
measures the time."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from autellix_engine.policy import Core, SchedulingSettings, snapshot

RUNNING = 64


def busy_core(waiting: int) -> Core:
    core = Core(SchedulingSettings.parse({"min_run_ms": 0}))
    for i in range(RUNNING):
        core.arrive(f"r{i}", now=0, program=f"p{i}", service_ms=1_500.0)
        core.start(f"r{i}", 0)
    for i in range(waiting):
        core.arrive(f"w{i}", now=0, program=f"q{i}", service_ms=100_000.0)
    return core


def work(operation: Callable[[], object]) -> int:
    """Functions called and lines run by Python."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    finally:
        sys.settrace(before)
    return count


def plan_with_a_better_call(core: Core) -> None:
    core.arrive("better", now=1, program="better")
    plan = core.plan(1, 0)
    assert [call.key for call in plan.admissions] == ["better"]
    core.preempt(plan.victims[0].key, 1)
    core.start("better", 1)


OPERATIONS: dict[str, Callable[[Core], object]] = {
    "a plan that changes nothing": lambda core: core.plan(1, 0),
    "an arrival": lambda core: core.arrive("x", now=1, program="x", service_ms=50.0),
    "an arrival of a known program": lambda core: core.arrive("x", now=1, program="q0"),
    "a charge": lambda core: core.charge([f"r{i}" for i in range(RUNNING)], 1),
    "a demotion of all that run": lambda core: core.charge([f"r{i}" for i in range(RUNNING)], 1_000),
    "an end": lambda core: core.end("r0", 2),
    "an end while it waits": lambda core: core.end("w50", 2),
    "a better call takes a slot": plan_with_a_better_call,
    "memory runs out": lambda core: core.preempt("r0", 2, for_memory=True),
    "the worst ratio": lambda core: core.worst_ratio(5),
    "a snapshot": lambda core: snapshot(core, 5),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_does_not_grow_with_the_number_of_waiting_calls(name: str) -> None:
    few, many = (work(partial(OPERATIONS[name], busy_core(waiting))) for waiting in (100, 5_000))
    assert many <= 1.05 * few + 10


def test_a_promotion_touches_the_promoted_call_alone() -> None:
    def promote(waiting: int) -> int:
        core = busy_core(0)
        core.arrive("starving", now=0, program="s", service_ms=2_000.0)  # before the others, by its program's service
        for i in range(waiting):
            core.arrive(f"w{i}", now=0, program=f"q{i}", service_ms=100_000.0)
        count = work(lambda: core.plan(8_000, 0))
        assert core.counts["promotions"] == 1
        return count

    assert promote(5_000) <= 1.05 * promote(100) + 10
