"""What the core costs follows what changes, not how many wait. ``pytest -s`` prints the figures."""

import statistics
import time
from collections.abc import Callable

import pytest

from autellix_engine.policy import Core, SchedulingSettings

RUNNING = 256
TOLERANCE = 3  # for slow and busy machines; the targets are those of an idle one

TARGETS_US = {"plan, nothing changes": 100, "arrive": 10, "charge, each call": 10, "end": 10, "preempt and start": 20}


def busy_core(waiting: int) -> Core:
    core = Core(SchedulingSettings.parse("{}"))
    for i in range(RUNNING):
        core.arrive(f"r{i}", now=0, program=f"p{i}", service_ms=100.0 * i)
        core.start(f"r{i}", 0)
    for i in range(waiting):
        core.arrive(f"w{i}", now=0, program=f"q{i}", service_ms=100_000.0)
    return core


def median_us(operation: Callable[[int], object], repeats: int = 1000) -> float:
    """Median CPU time of one operation, which is given its number."""
    times = []
    for i in range(repeats):
        begin = time.thread_time_ns()
        operation(i)
        times.append(time.thread_time_ns() - begin)
    return statistics.median(times) / 1000


def measure(waiting: int) -> dict[str, float]:
    core = busy_core(waiting)
    running = [f"r{i}" for i in range(RUNNING)]

    def preempt_and_start(i: int) -> None:
        core.preempt(f"r{i % RUNNING}", 3)
        core.start(f"r{i % RUNNING}", 3)

    return {
        "plan, nothing changes": median_us(lambda i: core.plan(1, 0)),
        "arrive": median_us(lambda i: core.arrive(f"x{i}", now=1, program=f"n{i}", service_ms=70.0 * i)),
        "charge, each call": median_us(lambda i: core.charge(running, 1)) / RUNNING,
        "end": median_us(lambda i: core.end(f"x{i}", 2)),
        "preempt and start": median_us(preempt_and_start),
    }


@pytest.fixture(scope="module")
def figures() -> dict[int, dict[str, float]]:
    figures = {waiting: measure(waiting) for waiting in (100, 10_000)}
    print(f"\n{'us of CPU time, median':<24}{'100 waiting':>14}{'10,000 waiting':>16}{'target':>8}")
    for name, target in TARGETS_US.items():
        print(f"{name:<24}{figures[100][name]:>14.2f}{figures[10_000][name]:>16.2f}{target:>8}")
    return figures


@pytest.mark.parametrize("operation", TARGETS_US)
def test_it_stays_cheap_with_ten_thousand_waiting(figures: dict[int, dict[str, float]], operation: str) -> None:
    assert figures[10_000][operation] < TOLERANCE * TARGETS_US[operation]


@pytest.mark.parametrize("operation", TARGETS_US)
def test_it_hardly_depends_on_how_many_wait(figures: dict[int, dict[str, float]], operation: str) -> None:
    assert figures[10_000][operation] < TOLERANCE * figures[100][operation] + 5
