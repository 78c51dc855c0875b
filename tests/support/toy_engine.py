"""An engine in which every step takes one unit of time: runs programs on a decision core, exactly.

A program is a graph of calls: each has a length in steps and starts when the calls that it waits for have finished.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autellix_engine.policy import CallEnd, Core, SchedulingSettings

UNIT = 1.0  # ms; a step


@dataclass(frozen=True)
class ToyCall:
    """One call of a program."""

    length: int
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToyProgram:
    """Calls by name; a call starts when all those that it comes after have finished."""

    calls: Mapping[str, ToyCall]
    arrival: int = 0

    @staticmethod
    def chain(lengths: Sequence[int], arrival: int = 0) -> "ToyProgram":
        """A single thread: calls one after another."""
        calls = {f"{i}": ToyCall(length, (f"{i - 1}",) if i else ()) for i, length in enumerate(lengths)}
        return ToyProgram(calls, arrival)


@dataclass
class ToyRun:
    """What happened."""

    waits: dict[str, float] = field(default_factory=dict)
    """By program, over its calls."""
    finished: dict[str, int] = field(default_factory=dict)
    """By program: the time at which its last call ended."""
    ends: dict[str, CallEnd] = field(default_factory=dict)
    """By call."""
    running: list[tuple[str, ...]] = field(default_factory=list)
    """By step."""

    @property
    def total_wait(self) -> float:
        return sum(self.waits.values())

    @property
    def makespan(self) -> int:
        return max(self.finished.values())


def unit_settings(policy: str, **changes: object) -> SchedulingSettings:
    """Settings on the scale of steps: levels and quanta of one step, no starvation, preemption free."""
    base: dict[str, object] = {
        "policy": policy,
        "queue_bounds_ms": [float(i) for i in range(1, 21)],
        "starvation_ratio": 1e9,
        "max_preemptions_per_step": 100,
        "min_run_ms": 0,
    }
    return SchedulingSettings.parse(base | changes)


def run(
    core: Core, slots: int, programs: Mapping[str, ToyProgram], *, checked: bool = False, limit: int = 10_000
) -> ToyRun:
    """Runs the programs to their end. With ``checked`` the core's integrity is checked in every step."""
    result = ToyRun(waits=dict.fromkeys(programs, 0.0))
    left = {
        f"{name}{call}": shape.length for name, program in programs.items() for call, shape in program.calls.items()
    }
    unfinished = {name: set(program.calls) for name, program in programs.items()}
    arrived: set[str] = set()
    running: list[str] = []
    for time in range(limit):
        _arrivals(core, time, programs, unfinished, arrived)
        if not any(unfinished.values()):
            return result
        plan = core.plan(time, slots - len(running))
        for victim in plan.victims:
            core.preempt(victim.key, time)
            running.remove(victim.key)
        for call in plan.admissions:
            core.start(call.key, time)
            running.append(call.key)
        assert len(running) <= slots
        result.running.append(tuple(running))
        core.charge(running, UNIT)
        if checked:
            core.check_integrity()
        for key in list(running):
            left[key] -= 1
            if left[key] == 0:
                running.remove(key)
                end = core.end(key, time + UNIT)
                name = end.program
                result.ends[key] = end
                result.waits[name] += end.wait_ms
                result.finished[name] = time + 1
                unfinished[name].discard(key.removeprefix(name))
    raise AssertionError(f"not finished after {limit} steps")


def _arrivals(
    core: Core,
    time: int,
    programs: Mapping[str, ToyProgram],
    unfinished: Mapping[str, Iterable[str]],
    arrived: set[str],
) -> None:
    for name, program in programs.items():
        for call, shape in program.calls.items():
            key = f"{name}{call}"
            if key not in arrived and time >= program.arrival and not set(shape.after) & set(unfinished[name]):
                arrived.add(key)
                core.arrive(key, now=time, program=name)
