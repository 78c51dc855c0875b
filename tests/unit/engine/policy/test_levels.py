"""Levels that follow what programs are served: slowly, in one direction at a time, and for new calls alone."""

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_engine.policy import Core, SchedulingSettings
from autellix_engine.policy.levels import (
    BAND,
    LARGEST_CHANGE,
    MEMORY,
    PROGRAMS_PER_CHANGE,
    SHARES,
    TOP_LIMITS_MS,
    FollowingLevels,
    limited,
)

services = st.floats(min_value=0, max_value=1e12, allow_nan=False)


def tops(levels: FollowingLevels, served: list[float]) -> list[float]:
    """The top bound after each of these programs."""
    seen = []
    for service in served:
        levels.finished(service)
        seen.append(levels.now.bounds[-1])
    return seen


@given(st.lists(services, max_size=400), st.floats(min_value=100, max_value=1e6))
@settings(max_examples=100, deadline=None)
def test_whatever_is_served_levels_stay_levels_and_change_seldom_and_little(served: list[float], first: float) -> None:
    levels = FollowingLevels(first)
    seen = [first, *tops(levels, served)]
    for number, (before, after) in enumerate(itertools.pairwise(seen), start=1):
        assert before / LARGEST_CHANGE * 0.999 <= after <= before * LARGEST_CHANGE * 1.001
        assert after == before or number % PROGRAMS_PER_CHANGE == 0
    bounds, quanta = levels.now.bounds, levels.now.quanta
    assert bounds == pytest.approx([share * seen[-1] for share in SHARES])
    assert all(lower < upper for lower, upper in itertools.pairwise((0.0, *bounds)))
    assert sum(quanta[:-1]) == pytest.approx(bounds[-1])
    assert quanta[-1] == float("inf")


@given(st.floats(min_value=0, max_value=1e12), st.floats(min_value=100, max_value=1e6))
@settings(max_examples=100, deadline=None)
def test_under_programs_that_stay_as_they_are_the_top_goes_one_way_and_then_stands_still(
    service: float, first: float
) -> None:
    seen = [first, *tops(FollowingLevels(first), [service] * 2_000)]
    ascending, descending = sorted(seen), sorted(seen, reverse=True)
    assert seen in (ascending, descending)
    low, high = (limited(share * service) for share in BAND)
    assert low * 0.999 <= seen[-1] <= high * 1.001
    if low <= first <= high:
        assert set(seen) == {first}


@given(st.lists(services, min_size=PROGRAMS_PER_CHANGE, max_size=MEMORY))
def test_a_change_never_goes_past_the_band_around_twice_the_mean(served: list[float]) -> None:
    levels = FollowingLevels(64_000)
    for number, service in enumerate(served, start=1):
        before = levels.now.bounds[-1]
        levels.finished(service)
        after = levels.now.bounds[-1]
        if number % PROGRAMS_PER_CHANGE == 0:
            low, high = (limited(share * statistics.fmean(served[:number])) for share in BAND)
            if after > before:
                assert after <= low * 1.001
            elif after < before:
                assert after >= high * 0.999


def test_the_top_stays_in_its_limits() -> None:
    assert tops(FollowingLevels(), [0.0] * 1_000)[-1] == TOP_LIMITS_MS[0]
    assert tops(FollowingLevels(), [1e15] * 2_000)[-1] == TOP_LIMITS_MS[1]


def serve(core: Core, program: str, service_ms: float, *, end: bool = True) -> None:
    """A program of one call that is served for so long."""
    key = f"call of {program}"
    core.arrive(key, now=0, program=program)
    core.start(key, 0)
    core.charge([key], service_ms)
    core.end(key, 0)
    if end:
        core.end_program(program)


@pytest.mark.parametrize("policy", ["mlfq", "plas", "atlas"])
def test_levels_follow_programs_that_ended_and_only_new_calls_notice(policy: str) -> None:
    core = Core(SchedulingSettings.parse({"policy": policy}))
    early = core.arrive("early", now=0, program="early", service_ms=1_500, path_ms=1_500)
    for i in range(PROGRAMS_PER_CHANGE * 10):
        serve(core, f"p{i}", 500)
    assert core.bounds[-1] < 64_000 / LARGEST_CHANGE**9
    late = core.arrive("late", now=0, program="late", service_ms=1_500, path_ms=1_500)
    assert early.quanta[:2] == (1_000, 1_000)
    assert late.quanta[0] < 200
    if policy != "mlfq":
        assert (early.level, late.level) == (1, 4)
    before = early.level
    core.charge(["early"], 1_000)
    assert (early.level, early.quantum_end) == (before + 1, 1_000 + early.quanta[before + 1])
    core.check_integrity()


def test_atlas_follows_paths_and_plas_sums() -> None:
    bounds = {}
    for policy in ("plas", "atlas"):
        core = Core(SchedulingSettings.parse({"policy": policy, "queue_bounds_ms": "auto"}))
        for i in range(PROGRAMS_PER_CHANGE):
            for call in range(4):
                core.arrive(f"{i}/{call}", now=0, program=f"{i}")
            for call in range(4):
                core.charge([f"{i}/{call}"], 20_000)
                core.end(f"{i}/{call}", 0)
            core.end_program(f"{i}")
        bounds[policy] = core.bounds[-1]
    assert bounds == {"plas": 64_000 * LARGEST_CHANGE, "atlas": 64_000}  # 4 times 20 s in sum, 20 s along the path


def test_programs_that_expire_count_and_those_that_had_to_make_room_do_not() -> None:
    for limit, changed in ((1_000, True), (1, False)):
        core = Core(SchedulingSettings.parse({"program_idle_seconds": 10, "max_programs": limit}))
        for i in range(PROGRAMS_PER_CHANGE + 1):
            serve(core, f"p{i}", 500, end=False)
        core.plan(20_000, free_slots=0)
        assert (core.bounds[-1] < 64_000) is changed


def test_programs_that_never_ran_do_not_count() -> None:
    core = Core(SchedulingSettings.parse({}))
    for i in range(PROGRAMS_PER_CHANGE * 3):
        core.arrive(f"{i}", now=0, program=f"{i}")
        core.end(f"{i}", 0)
        core.end_program(f"{i}")
    assert core.bounds[-1] == 64_000


def test_given_bounds_stay() -> None:
    core = Core(SchedulingSettings.parse({"queue_bounds_ms": [10, 20]}))
    for i in range(100):
        serve(core, f"p{i}", 500)
    assert core.bounds == (10, 20)
