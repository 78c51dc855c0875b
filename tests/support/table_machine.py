"""A state machine that compares any process table with a model, step by step. Two replicas act, both are checked."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from autellix_controller.table.entry import ProgramEntry, program_id
from support.table_contract import OWNER
from support.tables import World, record

_T = TypeVar("_T")

sessions = st.sampled_from(["s1", "s2", "s3"])
replicas = st.sampled_from([0, 1])
engines = st.sampled_from(["e1", "e2", "e3"])
incarnations = st.sampled_from(["e1.a", "e1.b", "e2.a"])


@dataclass
class Model:
    """What must be true of one session."""

    active: bool = False
    engine: str | None = None
    life: ProgramEntry | None = None
    calls: dict[str, int] = field(default_factory=dict)
    idle_since: float = 0.0

    def figures(self) -> tuple[float, int, float, float]:
        """Service, calls, path and wait of the present life."""
        highest = max(self.calls.values(), default=0)
        total = sum(self.calls.values())
        return (total * 100.0, total, highest * 100.0, highest * 10.0)


class TableMachine(RuleBasedStateMachine):
    """The rules. ``make_world`` is called once for each example, inside its event loop; ``idle_seconds`` is the
    world's session timeout, if passing time costs none."""

    def __init__(self, make_world: Callable[[], World], idle_seconds: float | None) -> None:
        super().__init__()
        self._idle_seconds = idle_seconds
        self._passed = 0.0
        self._running: Counter[tuple[str, int]] = Counter()
        self._runner = asyncio.Runner()
        self._world = self._run(_made(make_world))
        self._tables = [self._run(self._world.replica(name)) for name in ("a", "b")]
        self._models: dict[str, Model] = {name: Model() for name in ("s1", "s2", "s3")}
        self._races = 0
        self._former: list[tuple[str, ProgramEntry]] = []

    def _run(self, steps: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(steps)

    @rule(session=sessions, replica=replicas)
    def open(self, session: str, replica: int) -> None:
        """An active program stays; one that never was or has ended starts a life of its own."""
        model = self._models[session]
        entry = self._run(
            self._tables[replica].open(
                program_id(OWNER, session), owner=OWNER, session=session, now_ms=self._world.now_ms()
            )
        )
        if model.active:
            assert model.life is not None
            assert entry.engine_program == model.life.engine_program
        else:
            assert all(entry.engine_program != former.engine_program for _, former in self._former)
            self._models[session] = Model(active=True, life=entry, idle_since=self._passed)

    @rule(session=sessions, replica=replicas, engine=engines, expected=st.none() | engines | st.just("the present one"))
    def pin(self, session: str, replica: int, engine: str, expected: str | None) -> None:
        """The pin moves if it was where the caller thought."""
        model = self._models[session]
        expected = model.engine if expected == "the present one" else expected
        pinning = self._tables[replica].pin(program_id(OWNER, session), engine, expected=expected)
        if not model.active:
            with pytest.raises(KeyError):
                self._run(pinning)
            return
        if expected == model.engine:
            model.engine = engine
        assert self._run(pinning).engine == model.engine

    @precondition(lambda self: any(model.active for model in self._models.values()))
    @rule(session=sessions)
    def race(self, session: str) -> None:
        """Both replicas pin at once: one wins, and both say which."""
        model = self._models[session]
        if model.active:
            model.engine = self._run(self._race(session, model.engine))

    async def _race(self, session: str, expected: str | None) -> str | None:
        self._races += 1
        pinned = await asyncio.gather(
            *(
                table.pin(program_id(OWNER, session), f"racer-{number}-{self._races}", expected=expected)
                for number, table in enumerate(self._tables)
            )
        )
        assert pinned[0].engine == pinned[1].engine
        return pinned[0].engine

    @rule(session=sessions, replica=replicas, incarnation=incarnations, calls=st.integers(1, 6))
    def record_of_the_present_life(self, session: str, replica: int, incarnation: str, calls: int) -> None:
        """Absolute figures: the highest of each incarnation counts."""
        model = self._models[session]
        if model.active and model.life is not None:
            model.calls[incarnation] = max(calls, model.calls.get(incarnation, 0))
            model.idle_since = self._passed
            self._apply(replica, model.life, incarnation, calls)

    @precondition(lambda self: self._former)
    @rule(data=st.data(), replica=replicas, incarnation=incarnations)
    def record_of_a_former_life(self, data: st.DataObject, replica: int, incarnation: str) -> None:
        """Changes nothing."""
        _, former = data.draw(st.sampled_from(self._former))
        self._apply(replica, former, incarnation, 50)

    def _apply(self, replica: int, life: ProgramEntry, incarnation: str, calls: int) -> None:
        async def steps() -> None:
            self._tables[replica].apply(record(life, incarnation=incarnation, calls=calls), self._world.now_ms())

        self._run(steps())

    @rule(session=sessions, replica=replicas)
    def end(self, session: str, replica: int) -> None:
        """Only an active program ends."""
        model = self._models[session]
        assert self._run(self._tables[replica].end(program_id(OWNER, session))) is model.active
        if model.active and model.life is not None:
            self._former.append((session, model.life))
        self._models[session] = Model()

    @rule(session=sessions, replica=replicas)
    def a_call_arrives(self, session: str, replica: int) -> None:
        """It is activity until it departs."""
        self._running[session, replica] += 1
        self._models[session].idle_since = self._passed
        self._run(self._tell(self._tables[replica].arrived, session))

    @precondition(lambda self: self._running)
    @rule(data=st.data())
    def a_call_departs(self, data: st.DataObject) -> None:
        """From now on its program may be idle."""
        session, replica = data.draw(st.sampled_from(sorted(self._running)))
        self._running -= Counter([(session, replica)])
        self._models[session].idle_since = self._passed
        self._run(self._tell(self._tables[replica].departed, session))

    async def _tell(self, what: Callable[[str, int], None], session: str) -> None:
        what(program_id(OWNER, session), self._world.now_ms())

    @precondition(lambda self: self._idle_seconds is not None)
    @rule(part=st.sampled_from([0.25, 0.75, 1.5]))
    def time_passes(self, part: float) -> None:
        """Whoever was idle for the session timeout is gone, and nobody else."""
        assert self._idle_seconds is not None
        self._passed += part * self._idle_seconds
        self._run(self._world.idle(part * self._idle_seconds))
        running = {session for session, _ in self._running}
        for session, model in self._models.items():
            if session in running:
                model.idle_since = self._passed  # as of when somebody looks, which the invariant does
            elif model.active and self._passed - model.idle_since >= self._idle_seconds:
                assert model.life is not None
                self._former.append((session, model.life))
                self._models[session] = Model()

    @invariant()
    def every_replica_agrees_with_the_model(self) -> None:
        """Once everything is written and seen."""
        self._run(self._world.agree())
        active = sorted(program_id(OWNER, name) for name, model in self._models.items() if model.active)
        for table in self._tables:
            assert table.count() == len(active)
            assert [entry.id for entry in table.page(OWNER, "", 10)] == active
            for session, model in self._models.items():
                entry = table.get(program_id(OWNER, session))
                if not model.active:
                    assert entry is None or entry.state == "ended"
                    continue
                assert entry is not None
                assert entry.state == "active"
                assert entry.engine == model.engine
                assert (entry.service_ms, entry.calls, entry.path_ms, entry.wait_ms) == model.figures()

    def teardown(self) -> None:
        """Ends the example's world."""
        self._run(self._world.end())
        self._runner.close()


async def _made(make_world: Callable[[], World]) -> World:
    return make_world()


def run_table_machine(
    make_world: Callable[[], World], *, examples: int, shrink: bool = True, idle_seconds: float | None = None
) -> None:
    """Runs so many examples; fails with the shortest that disagrees with the model, or without ``shrink`` with the
    first. ``idle_seconds``: see ``TableMachine``."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        lambda: TableMachine(make_world, idle_seconds),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=phases,
            report_multiple_bugs=False,
        ),
    )
