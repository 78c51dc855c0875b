"""Any sequence of events, under every policy, against a model that is as simple as can be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autellix_engine.policy import POLICIES, CallState, Core, Plan, SchedulingSettings

PROGRAMS = ["p", "q", "r", None]
SLOTS = 3
durations = st.integers(0, 30)


@dataclass
class Expected:
    """What the model knows of a call."""

    program: str | None
    service: float = 0.0
    wait: float = 0.0
    running: bool = False
    ready: bool = True
    policy_preemptions: int = 0
    forced_preemptions: int = 0


class CoreMachine(RuleBasedStateMachine):
    """One engine with three slots. All numbers are whole, so that sums are exact."""

    policy: str

    @initialize(
        max_preemptions=st.integers(0, 3),
        min_run=st.sampled_from([None, 0, 5, 12]),
        ratio=st.sampled_from([1, 2, 1_000]),
        max_programs=st.sampled_from([1, 2, 100]),
    )
    def begin(self, max_preemptions: int, min_run: int | None, ratio: int, max_programs: int) -> None:
        self.quantum = 8
        self.min_run = self.quantum if min_run is None else min_run
        self.core = Core(
            SchedulingSettings.parse(
                {
                    "policy": self.policy,
                    "queue_bounds_ms": [self.quantum, 16, 48],
                    "starvation_ratio": ratio,
                    "starvation_floor_ms": 4,
                    "max_preemptions_per_step": max_preemptions,
                    "min_run_ms": min_run,
                    "program_idle_seconds": 0.1,
                    "max_programs": max_programs,
                }
            )
        )
        self.now = 0.0
        self.calls: dict[str, Expected] = {}
        self.count = 0

    def _pick(self, data: st.DataObject, wanted: Callable[[Expected], bool]) -> str:
        keys = [key for key, call in self.calls.items() if wanted(call)]
        assume(keys)
        return data.draw(st.sampled_from(keys))

    def _pass_time(self, ms: float) -> None:
        self.now += ms
        for call in self.calls.values():
            if call.ready and not call.running:
                call.wait += ms

    @rule(
        program=st.sampled_from(PROGRAMS),
        service=durations,
        path=durations,
        wait=durations,
        ready=st.booleans(),
        gives_way=st.sampled_from([True, True, True, False]),
    )
    def arrive(self, program: str | None, service: int, path: int, wait: int, ready: bool, gives_way: bool) -> None:
        self.count += 1
        key = f"c{self.count}"
        known = self.core.programs.get(program) if program else None
        before = (known.service_ms, known.path_ms, known.wait_ms) if known else (0, 0, 0)
        brought = (service, path, wait) if program else (0, 0, 0)
        call = self.core.arrive(
            key,
            now=self.now,
            program=program,
            service_ms=brought[0],
            path_ms=brought[1],
            wait_ms=brought[2],
            ready=ready,
            gives_way=gives_way,
        )
        self.calls[key] = Expected(program, ready=ready)
        if program:
            after = (call.program.service_ms, call.program.path_ms, call.program.wait_ms)
            assert all(a >= b for a, b in zip(after, before, strict=True))
            assert all(a >= b for a, b in zip(after, brought, strict=True))

    @rule(ms=durations, free_first=st.booleans())
    def step(self, ms: int, free_first: bool) -> None:
        """Plan, carry it out, let it run for a while, charge."""
        running = [key for key, call in self.calls.items() if call.running]
        free = SLOTS - len(running)
        plan = self.core.plan(self.now, free)
        again = self.core.plan(self.now, free)
        assert (again.admissions, again.victims) == (plan.admissions, plan.victims)
        self._check_plan(plan, free)
        for victim in plan.victims:
            self.core.preempt(victim.key, self.now)
            self.calls[victim.key].running = False
            self.calls[victim.key].policy_preemptions += 1
        for call in plan.admissions:
            self.core.start(call.key, self.now)
            self.calls[call.key].running = True
        ran = [key for key, call in self.calls.items() if call.running]
        assert len(ran) <= SLOTS
        self._pass_time(ms)
        self.core.charge(ran, ms)
        for key in ran:
            self.calls[key].service += ms

    def _check_plan(self, plan: Plan, free: int) -> None:
        assert len(plan.victims) <= self.core.settings.max_preemptions_per_step
        assert len(plan.admissions) <= free + len(plan.victims)
        ready = [call for call in self.core.waiting() if call.ready]
        assert list(plan.admissions) == ready[: len(plan.admissions)]  # strict queue order
        if len(plan.admissions) < free:  # work conservation: nobody is left who could run
            assert len(plan.admissions) == len(ready)
        taken = plan.admissions[free:] if free > 0 else plan.admissions
        assert all(victim.gives_way for victim in plan.victims)
        for call, victim in zip(taken, plan.victims, strict=True):
            assert call.level < victim.level

    @precondition(lambda self: any(call.running for call in self.calls.values()))
    @rule(data=st.data())
    def memory_runs_out(self, data: st.DataObject) -> None:
        key = self._pick(data, lambda call: call.running)
        self.core.preempt(key, self.now, for_memory=True)
        self.calls[key].running = False
        self.calls[key].forced_preemptions += 1

    @precondition(lambda self: any(call.running for call in self.calls.values()))
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        key = self._pick(data, lambda call: call.running)
        self.core.pause(key, self.now)
        self.calls[key].running = self.calls[key].ready = False

    @precondition(lambda self: any(not call.running for call in self.calls.values()))
    @rule(data=st.data(), ready=st.booleans())
    def readiness_changes(self, data: st.DataObject, ready: bool) -> None:
        key = self._pick(data, lambda call: not call.running)
        self.core.set_ready(key, ready, self.now)
        self.calls[key].ready = ready

    @precondition(lambda self: any(not call.running for call in self.calls.values()))
    @rule(data=st.data())
    def take_and_put_back(self, data: st.DataObject) -> None:
        key = self._pick(data, lambda call: not call.running)
        order = [call.key for call in self.core.waiting()]
        self.core.take(key)
        self.core.check_integrity()
        self.core.put_back(key)
        assert [call.key for call in self.core.waiting()] == order

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), ms=durations)
    def late_charge(self, data: st.DataObject, ms: int) -> None:
        """A step that was in flight when the call lost its slot comes back."""
        key = self._pick(data, lambda call: True)
        self.core.charge([key, "gone"], ms)
        self.calls[key].service += ms

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Finished or aborted, in whatever state."""
        key = self._pick(data, lambda call: True)
        program = self.core.call(key).program
        own, path = program.own_ms, program.path_ms
        end = self.core.end(key, self.now)
        expected = self.calls.pop(key)
        assert (end.service_ms, end.wait_ms) == (expected.service, expected.wait)
        assert end.preemptions == expected.policy_preemptions + expected.forced_preemptions
        assert end.own_service_ms == own + expected.service
        assert end.path_ms >= path
        assert key not in self.core

    @rule(ms=durations)
    def time_passes(self, ms: int) -> None:
        self._pass_time(ms)

    @rule(program=st.sampled_from(["p", "q", "r"]))
    def program_ends(self, program: str) -> None:
        self.core.end_program(program)

    @invariant()
    def the_core_agrees_with_itself(self) -> None:
        self.core.check_integrity()

    @invariant()
    def the_core_agrees_with_the_model(self) -> None:
        assert len(self.core) == len(self.calls)
        for key, expected in self.calls.items():
            call = self.core.call(key)
            assert (call.state is CallState.RUNNING) == expected.running
            pending = self.now - call.waiting_since if call.waiting_since is not None else 0
            assert (call.total_service, call.total_wait + pending) == (expected.service, expected.wait)

    @invariant()
    def preemptions_are_paid_for_by_service(self) -> None:
        """By default at most once for each quantum of the best level that was used, and once more."""
        for expected in self.calls.values():
            if self.min_run > 0:
                assert expected.policy_preemptions <= 1 + expected.service // self.min_run


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_any_sequence_of_events_keeps_the_core_right(policy: str) -> None:
    machine: Any = type(f"Machine_{policy}", (CoreMachine,), {"policy": policy})
    case = machine.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=False)
    case("runTest").runTest()
