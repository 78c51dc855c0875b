"""The lines of Algorithm 1, one by one, and the limits on preemption."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from autellix_engine.policy import Call, CallState, Core, SchedulingSettings, snapshot

BASE = {
    "policy": "plas",
    "queue_bounds_ms": [10, 20, 40],
    "starvation_ratio": 2,
    "starvation_floor_ms": 5,
    "min_run_ms": 4,
    "max_preemptions_per_step": 2,
}


def make(**changes: object) -> Core:
    return Core(SchedulingSettings.parse(BASE | changes))


def keys(calls: Iterable[Call]) -> list[str]:
    return [call.key for call in calls]


def arrive_running(core: Core, key: str, *, service_ms: float = 0.0, now: float = 0.0) -> None:
    core.arrive(key, now=now, program=key, service_ms=service_ms)
    core.start(key, now)


# ---- arrival


@pytest.mark.parametrize(("service", "level"), [(0, 0), (9.99, 0), (10, 1), (19.99, 1), (20, 2), (40, 3), (1e12, 3)])
def test_a_call_starts_in_the_level_whose_bounds_hold_its_programs_service(service: float, level: int) -> None:
    assert make().arrive("a", now=0, program="p", service_ms=service).level == level


def test_inside_a_level_calls_are_served_in_order_of_arrival() -> None:
    core = make()
    for key in "cab":
        core.arrive(key, now=0, program=key)
    assert keys(core.plan(0, free_slots=2).admissions) == ["c", "a"]


def test_a_better_level_is_served_first() -> None:
    core = make()
    core.arrive("old", now=0, program="p", service_ms=15)
    core.arrive("new", now=1, program="q", service_ms=3)
    assert keys(core.plan(1, free_slots=1).admissions) == ["new"]


def test_a_call_without_a_program_is_a_program_of_its_own_and_leaves_nothing() -> None:
    core = make()
    assert core.arrive("a", now=0).level == 0
    core.start("a", 0)
    core.charge(["a"], 7)
    end = core.end("a", 9)
    assert (end.own_service_ms, end.path_ms, end.own_calls) == (7, 7, 1)
    assert len(core.programs) == 0


def test_a_key_cannot_be_used_twice() -> None:
    core = make()
    core.arrive("a", now=0)
    with pytest.raises(ValueError, match="already here"):
        core.arrive("a", now=1)


# ---- finished


@pytest.mark.parametrize(("policy", "level"), [("fcfs", 0), ("mlfq", 0), ("plas", 2), ("atlas", 1)])
def test_what_a_program_hands_on_depends_on_the_policy(policy: str, level: int) -> None:
    """Two parallel calls of 12 each: 24 in sum, 12 along the longest path."""
    core = make(policy=policy)
    for key in ("a", "b"):
        core.arrive(key, now=0, program="p")
        core.start(key, 0)
    core.charge(["a", "b"], 12)
    for key in ("a", "b"):
        core.end(key, 12)
    assert core.arrive("c", now=12, program="p").level == level


def test_a_path_continues_the_path_at_the_calls_arrival() -> None:
    core = make()
    for i in range(3):
        arrive_running(core, f"{i}", now=i)
    core.charge(["0", "1", "2"], 5)
    assert core.end("0", 5).path_ms == 5
    core.arrive("0b", now=5, program="0")
    core.start("0b", 5)
    core.charge(["0b"], 3)
    assert core.end("0b", 8).path_ms == 8


def test_a_program_known_here_is_served_by_the_newer_of_both_figures() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=12, path_ms=12, wait_ms=3)
    core.start("a", 0)
    core.charge(["a"], 9)
    core.end("a", 9)
    late = core.arrive("b", now=9, program="p", service_ms=12, path_ms=12, wait_ms=3)  # its record was not applied yet
    assert late.level == 2
    assert late.program.service_ms == 21


def test_what_an_aborted_call_used_counts_for_its_program() -> None:
    core = make()
    arrive_running(core, "a")
    core.charge(["a"], 25)
    core.preempt("a", 25)
    assert core.end("a", 30).own_service_ms == 25


def test_a_charge_for_a_call_that_has_ended_is_dropped() -> None:
    core = make()
    arrive_running(core, "a")
    core.end("a", 1)
    assert core.charge(["a"], 5) == []


# ---- quantum used up


@pytest.mark.parametrize(
    ("charges", "level"), [([9.99], 0), ([10], 1), ([5, 5], 1), ([10, 10], 2), ([15, 5], 2), ([1000], 3)]
)
def test_a_used_up_quantum_moves_a_call_down_and_the_last_level_keeps_it(charges: list[float], level: int) -> None:
    core = make()
    arrive_running(core, "a")
    for charge in charges:
        core.charge(["a"], charge)
    assert core.call("a").level == level
    core.check_integrity()


def test_a_quantum_counts_across_preemption() -> None:
    core = make()
    arrive_running(core, "a")
    core.charge(["a"], 6)
    core.preempt("a", 6)
    core.start("a", 7)
    assert [call.key for call in core.charge(["a"], 4)] == ["a"]
    assert core.call("a").level == 1


def test_a_demoted_call_stands_behind_those_already_in_the_level() -> None:
    core = make()
    arrive_running(core, "a")
    core.arrive("b", now=0, program="b", service_ms=12)
    core.charge(["a"], 10)
    core.preempt("a", 10)
    assert keys(core.waiting()) == ["b", "a"]


def test_a_call_that_lost_its_slot_with_a_step_in_flight_is_charged_and_demoted_in_the_queue() -> None:
    core = make()
    arrive_running(core, "a")
    core.preempt("a", 0)
    core.charge(["a"], 12)
    assert core.call("a").level == 1
    core.check_integrity()


def test_given_quanta_replace_the_widths_of_the_levels() -> None:
    core = make(quanta_ms=[1, 2, 3])
    arrive_running(core, "a")
    core.charge(["a"], 3)
    assert core.call("a").level == 2


# ---- starving


def test_a_starving_call_moves_to_the_front_of_the_best_level() -> None:
    core = make()
    core.arrive("starving", now=0, program="p", service_ms=15)  # starves at beta * 15 = 30
    for now, key in ((25, "fresh"), (29, "fresher")):
        core.arrive(key, now=now, program=key)
    assert keys(core.plan(29.9, free_slots=0).admissions) == []
    assert core.call("starving").level == 1
    assert keys(core.plan(30, free_slots=1).admissions) == ["starving"]
    assert core.call("starving").level == 0


def test_promoted_calls_are_served_in_order_of_promotion() -> None:
    core = make()
    core.arrive("b", now=0, program="b", service_ms=12)
    core.arrive("a", now=0, program="a", service_ms=15)
    core.plan(25, free_slots=0)
    core.plan(35, free_slots=0)
    assert keys(core.waiting()) == ["b", "a"]
    assert core.counts["promotions"] == 2


def test_the_programs_own_wait_counts_towards_starvation() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=15, wait_ms=20)
    core.plan(9.9, free_slots=0)
    assert core.call("a").promotions == 0
    core.plan(10, free_slots=0)
    assert core.call("a").promotions == 1


def test_a_wait_that_a_sibling_hands_on_brings_the_other_calls_forward() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=15)
    core.arrive("b", now=0, program="p")
    core.start("a", 20)
    core.end("a", 20)  # the program has waited for 20 now; b waited for 20 too
    core.plan(20, free_slots=0)
    assert core.call("b").promotions == 1


def test_service_below_the_floor_counts_as_the_floor() -> None:
    core = make()
    core.arrive("a", now=0, program="p")
    core.plan(9.9, free_slots=0)  # beta * floor = 10
    assert core.call("a").promotions == 0
    core.plan(10, free_slots=0)
    assert core.call("a").promotions == 1


def test_promotion_resets_the_ratio_but_not_the_accounting() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=15)
    core.start("a", 5)
    core.charge(["a"], 8)
    core.preempt("a", 13)
    core.plan(13 + 2 * (15 + 8) - 5, free_slots=0)
    call = core.call("a")
    assert (call.promotions, call.wait, call.service, call.quantum_end) == (1, 0, 0, 8 + 10)
    assert (call.total_wait, call.total_service) == (46, 8)
    core.start("a", 60)
    core.charge(["a"], 2)
    end = core.end("a", 62)
    assert (end.service_ms, end.wait_ms) == (10, 5 + 47)
    assert end.own_service_ms == 10


def test_a_promoted_call_that_uses_up_its_quantum_is_demoted_and_can_starve_again() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=45)
    core.plan(90, free_slots=0)
    core.start("a", 90)
    core.charge(["a"], 10)
    core.preempt("a", 100)
    call = core.call("a")
    assert (call.level, call.promoted) == (1, False)
    core.plan(100 + 2 * (45 + 10), free_slots=0)
    assert call.promotions == 2


def test_a_promoted_call_that_waits_is_not_promoted_over_and_over() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=15, wait_ms=1_000)
    for now in range(1, 200):
        core.plan(now, free_slots=0)
    assert core.call("a").promotions == 1


def test_a_crowd_that_starves_at_once_is_promoted_over_several_decisions_in_its_order() -> None:
    core = make()
    for i in range(600):
        core.arrive(f"{i}", now=0, program=f"{i}", service_ms=15)
    promoted = []
    for _ in range(3):
        core.plan(1_000, free_slots=0)
        promoted.append(core.counts["promotions"])
    assert promoted == [256, 512, 600]
    assert keys(core.waiting()) == [f"{i}" for i in range(600)]


def test_a_call_that_is_not_ready_neither_waits_nor_starves() -> None:
    core = make()
    core.arrive("a", now=0, program="p", service_ms=15, ready=False)
    core.plan(1_000, free_slots=1)
    assert core.call("a").promotions == 0
    core.set_ready("a", True, now=1_000)
    core.start("a", 1_003)
    assert core.end("a", 1_010).wait_ms == 3


@pytest.mark.parametrize(("waited", "breaches"), [(13, 0), (13.1, 1)])
def test_a_promoted_call_that_waits_longer_than_its_bound_is_counted(waited: float, breaches: int) -> None:
    core = make(max_preemptions_per_step=1)
    arrive_running(core, "holder")
    core.charge(["holder"], 1)  # the longest step
    core.arrive("a", now=0, program="a", service_ms=15)
    core.plan(30, free_slots=0)  # bound: a decision, a turn of 10, its last step, the handover of one slot
    assert core.call("a").promotions == 1
    core.preempt("holder", 30)
    core.start("a", 30 + waited)
    assert core.counts["bound_breaches"] == breaches
    core.preempt("a", 50)
    core.start("a", 1_000)
    assert core.counts["bound_breaches"] == breaches, "a wait without a promotion has no such bound"


@pytest.mark.parametrize(("waited", "breaches"), [(25, 0), (25.1, 1)])
def test_the_bound_lets_promoted_calls_in_front_have_their_turns(waited: float, breaches: int) -> None:
    core = make(max_preemptions_per_step=1)
    arrive_running(core, "holder")
    core.charge(["holder"], 1)
    for key in "ab":
        core.arrive(key, now=0, program=key, service_ms=15)
    core.plan(30, free_slots=0)  # one slot: b waits for the holder's turn and for that of a
    core.preempt("holder", 30)
    core.start("a", 31)
    core.preempt("a", 40)
    core.start("b", 30 + waited)
    assert core.counts["bound_breaches"] == breaches


def test_the_bound_counts_the_longest_turn_of_a_holder_and_no_slot_that_nobody_gives_up() -> None:
    core = Core(
        SchedulingSettings.parse({"starvation_ratio": 2, "starvation_floor_ms": 5, "max_preemptions_per_step": 1})
    )
    core.arrive("session", now=0, program="s", gives_way=False)
    core.start("session", 0)
    arrive_running(core, "early")  # its turn is a second, as long as the best level was then
    core.charge(["early"], 1)
    for i in range(200):
        arrive_running(core, f"{i}", now=0)
        core.charge([f"{i}"], 1)
        core.end(f"{i}", 0)
        core.end_program(f"{i}")
    call = core.arrive("a", now=0, program="a", service_ms=15)
    assert call.quanta[0] < 500
    core.plan(30, free_slots=0)
    core.preempt("early", 30)
    core.start("a", 30 + 3 + 1_000)  # a decision, the last step of the turn, one handover
    assert core.counts["bound_breaches"] == 0
    core.preempt("a", 2_000)
    core.start("early", 2_000)
    core.plan(1e6, free_slots=0)
    assert call.promotions == 1, "a promoted call that was preempted is first already"


def test_the_worst_ratio_is_that_of_the_call_that_starves_most() -> None:
    core = make()
    assert core.worst_ratio(0) == 0
    core.arrive("a", now=0, program="a", service_ms=15, wait_ms=3)
    core.arrive("b", now=0, program="b")  # served less than the floor of 5
    core.arrive("loading", now=0, program="c", wait_ms=1_000, ready=False)
    assert core.worst_ratio(6) == pytest.approx(6 / 5)
    core.start("b", 6)
    assert core.worst_ratio(6) == pytest.approx(9 / 15)
    core.plan(1_000, free_slots=0)
    assert core.call("a").promotions == 1
    assert core.worst_ratio(1_002) == pytest.approx(1_005 / 15), "a promotion ends no wait"


def test_the_worst_ratio_is_found_at_the_head_of_any_level() -> None:
    core = make(starvation_ratio=1e9)
    for i in range(200):
        core.arrive(f"old {i}", now=i, program=f"old {i}", service_ms=(i % 3 + 1) * 14)
    for i in range(200):
        core.arrive(f"new {i}", now=1_990, program=f"new {i}")  # in the best level, and not waiting for long
    assert core.worst_ratio(2_000) == pytest.approx(2_000 / 14)


# ---- batch and preemption


def test_calls_are_taken_in_order_while_they_fit_and_the_first_that_does_not_ends_it() -> None:
    core = make()
    for key in "abc":
        core.arrive(key, now=0, program=key)
    assert keys(core.plan(0, free_slots=3, fits=lambda call, victims: call.key != "b").admissions) == ["a"]


def test_a_running_call_gives_way_only_to_a_strictly_better_level() -> None:
    core = make()
    arrive_running(core, "running", service_ms=15)
    core.arrive("equal", now=0, program="q", service_ms=15)
    assert core.plan(0, free_slots=0).victims == ()
    core.arrive("better", now=0, program="r")
    plan = core.plan(0, free_slots=0)
    assert (keys(plan.admissions), keys(plan.victims)) == (["better"], ["running"])


def test_the_worst_level_gives_way_first_and_in_it_the_latest() -> None:
    core = make(max_preemptions_per_step=3)
    for key, service in (("mid", 15), ("worst early", 50), ("worst late", 50)):
        arrive_running(core, key, service_ms=service)
    for i in range(3):
        core.arrive(f"{i}", now=0, program=f"{i}")
    assert keys(core.plan(0, free_slots=0).victims) == ["worst late", "worst early", "mid"]


def test_a_call_that_may_not_give_way_keeps_its_slot() -> None:
    core = make()
    core.arrive("session", now=0, program="s", service_ms=50, gives_way=False)
    core.start("session", 0)
    core.arrive("better", now=0, program="b")
    assert core.plan(0, free_slots=0).victims == ()
    arrive_running(core, "mid", service_ms=15)
    assert keys(core.plan(0, free_slots=0).victims) == ["mid"]


def test_preemptions_in_one_step_are_limited() -> None:
    core = make()
    for i in range(5):
        arrive_running(core, f"r{i}", service_ms=50)
        core.arrive(f"w{i}", now=0, program=f"w{i}")
    plan = core.plan(0, free_slots=0)
    assert (len(plan.victims), len(plan.admissions)) == (2, 2)


def test_a_limit_of_zero_means_that_nobody_gives_way() -> None:
    core = make(max_preemptions_per_step=0)
    arrive_running(core, "r", service_ms=50)
    core.arrive("w", now=0, program="w")
    assert core.plan(0, free_slots=0).victims == ()


def test_a_resumed_call_keeps_its_slot_for_its_minimum_run() -> None:
    core = make()
    arrive_running(core, "long", service_ms=50)
    core.preempt("long", 0)
    core.start("long", 1)
    core.arrive("short", now=1, program="s")
    core.charge(["long"], 3.9)
    assert core.plan(5, free_slots=0).victims == ()
    core.charge(["long"], 0.1)
    assert keys(core.plan(5, free_slots=0).victims) == ["long"]


def test_memory_forces_a_resumed_call_out_nevertheless() -> None:
    core = make()
    arrive_running(core, "long")
    core.preempt("long", 0)
    core.start("long", 1)
    core.preempt("long", 2, for_memory=True)
    assert core.call("long").state is CallState.WAITING
    assert core.counts == {"arrivals": 1, "preemptions_policy": 1, "preemptions_memory": 1}


def test_nobody_gives_way_in_vain() -> None:
    core = make()
    arrive_running(core, "long", service_ms=50)
    core.arrive("huge", now=0, program="h")
    plan = core.plan(0, free_slots=0, fits=lambda call, victims: False)
    assert (plan.admissions, plan.victims) == ((), ())


def test_memory_is_made_free_for_a_better_call_though_a_slot_is_free() -> None:
    core = make()
    arrive_running(core, "long", service_ms=50)
    core.arrive("short", now=0, program="s")
    plan = core.plan(0, free_slots=1, fits=lambda call, victims: bool(victims))
    assert (keys(plan.admissions), keys(plan.victims)) == (["short"], ["long"])


def test_a_call_that_is_not_ready_is_passed_over() -> None:
    core = make()
    core.arrive("loading", now=0, program="a", ready=False)
    core.arrive("ready", now=0, program="b", service_ms=50)
    assert keys(core.plan(0, free_slots=1).admissions) == ["ready"]


def test_a_preempted_call_keeps_its_place() -> None:
    core = make()
    arrive_running(core, "first", service_ms=15)
    core.arrive("second", now=1, program="q", service_ms=15)
    core.preempt("first", 2)
    assert keys(core.waiting()) == ["first", "second"]


def test_under_fcfs_there_is_one_queue_and_nobody_gives_way_or_starves() -> None:
    core = make(policy="fcfs")
    arrive_running(core, "long", service_ms=1e6)
    core.charge(["long"], 1e6)
    core.arrive("a", now=0, program="a", service_ms=1e6)
    core.arrive("b", now=0, program="b")
    plan = core.plan(1e9, free_slots=0)
    assert (core.levels, plan.victims, core.counts["promotions"]) == (1, (), 0)
    assert keys(core.waiting()) == ["a", "b"]


# ---- pausing, taking, ending programs


def test_a_paused_call_waits_without_being_counted_as_preempted() -> None:
    core = make()
    arrive_running(core, "a")
    core.pause("a", 5)
    assert core.plan(100, free_slots=1).admissions == ()
    core.set_ready("a", True, 100)
    assert keys(core.plan(100, free_slots=1).admissions) == ["a"]
    core.start("a", 103)
    end = core.end("a", 104)
    assert (end.wait_ms, end.preemptions) == (3, 0)


def test_a_call_that_was_taken_returns_to_its_place() -> None:
    core = make()
    for key in "ab":
        core.arrive(key, now=0, program=key)
    core.take("a")
    assert keys(core.waiting()) == ["b"]
    core.check_integrity()
    core.put_back("a")
    core.put_back("a")
    assert keys(core.waiting()) == ["a", "b"]
    core.check_integrity()


def test_a_call_can_end_while_it_is_taken() -> None:
    core = make()
    core.arrive("a", now=0, program="p")
    core.take("a")
    assert core.end("a", 4).wait_ms == 4
    core.check_integrity()


def test_an_ended_program_is_forgotten_with_its_last_call() -> None:
    core = make()
    arrive_running(core, "a", service_ms=50)
    core.end_program("a")
    core.end("a", 1)
    assert core.arrive("again", now=2, program="a").level == 0


def test_planning_forgets_idle_programs() -> None:
    core = make(program_idle_seconds=1)
    arrive_running(core, "a")
    core.end("a", 0)
    core.plan(999, free_slots=0)
    assert len(core.programs) == 1
    core.plan(1000, free_slots=0)
    assert len(core.programs) == 0


def test_a_snapshot_is_bounded_and_serialisable() -> None:
    core = make()
    for i in range(200):
        core.arrive(f"w{i}", now=0, program=f"w{i}")
        arrive_running(core, f"r{i}", service_ms=i)
    seen: dict[str, Any] = snapshot(core, now=5, limit=10)
    assert json.loads(json.dumps(seen)) == seen
    assert [len(seen[name]) for name in ("running", "waiting", "active_programs")] == [10, 10, 10]
    assert (sum(seen["waiting_by_level"]), sum(seen["running_by_level"])) == (200, 200)
    assert seen["waiting"][0]["wait_ms"] == 5
    assert seen["active_programs"][0]["id"] == "w0"
    assert seen["running"][0]["key"] == "r199"
