"""What holds for every policy in the registry, one that is added later included."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_engine.policy import POLICIES, Core, Policy
from autellix_engine.policy.programs import Program
from support.toy_engine import ToyCall, ToyProgram, run, unit_settings

every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))

chains = st.builds(
    ToyProgram.chain,
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    arrival=st.integers(0, 10),
)


@st.composite
def graphs(draw: Callable[..., Any]) -> ToyProgram:
    """A program whose calls may run in parallel: each waits for some of those before it."""
    size = draw(st.integers(1, 5))
    calls = {
        f"{i}": ToyCall(
            draw(st.integers(1, 5)), tuple(draw(st.sets(st.sampled_from([f"{j}" for j in range(i)])))) if i else ()
        )
        for i in range(size)
    }
    return ToyProgram(calls, draw(st.integers(0, 10)))


workloads = st.lists(st.one_of(chains, graphs()), min_size=1, max_size=5).map(
    lambda programs: {chr(65 + i): program for i, program in enumerate(programs)}
)
limits = st.fixed_dictionaries(
    {
        "max_preemptions_per_step": st.integers(0, 3),
        "min_run_ms": st.integers(0, 4),
        "starvation_ratio": st.sampled_from([0.5, 2.0, 1e9]),
        "starvation_floor_ms": st.sampled_from([1.0, 3.0]),
        "queue_bounds_ms": st.sampled_from([[1.0, 2.0, 3.0], [2.0, 8.0], [3.0]]),
    }
)


@every_policy
def test_it_is_registered_under_its_own_name_and_holds_no_state(policy: str) -> None:
    instance: Policy = POLICIES[policy]
    assert instance.name == policy
    assert not getattr(instance, "__dict__", {})


@every_policy
def test_what_a_call_inherits_never_shrinks_as_the_program_is_served(policy: str) -> None:
    program, before = Program("p"), 0.0
    for _ in range(5):
        program.own_ms += 3
        program.path_ms += 2
        program.wait_ms += 1
        assert POLICIES[policy].service_ms(program) >= before
        before = POLICIES[policy].service_ms(program)


@every_policy
@given(workloads, limits, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_call_ends_once_with_exactly_its_service(
    policy: str, programs: Mapping[str, ToyProgram], changes: dict[str, object], slots: int
) -> None:
    result = run(Core(unit_settings(policy, **changes)), slots, programs, checked=True)
    expected = {f"{name}{call}": shape.length for name, p in programs.items() for call, shape in p.calls.items()}
    assert {key: end.service_ms for key, end in result.ends.items()} == expected


@every_policy
@given(workloads, limits, st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_the_same_input_gives_the_same_schedule(
    policy: str, programs: Mapping[str, ToyProgram], changes: dict[str, object], slots: int
) -> None:
    first, second = (run(Core(unit_settings(policy, **changes)), slots, programs) for _ in range(2))
    assert first.running == second.running


@every_policy
@given(workloads, st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_programs_totals_hold_all_its_calls(policy: str, programs: Mapping[str, ToyProgram], slots: int) -> None:
    """The path is one scalar that every new call inherits, so it may exceed the true longest path, never miss it."""
    core = Core(unit_settings(policy))
    run(core, slots, programs)
    for name, program in programs.items():
        figures = core.programs.get(name)
        assert figures is not None
        assert figures.own_ms == sum(shape.length for shape in program.calls.values())
        assert critical_path(program) <= figures.path_ms <= figures.own_ms


def critical_path(program: ToyProgram) -> int:
    """Longest dependent sequence of calls, in steps."""
    lengths: dict[str, int] = {}
    for name, call in program.calls.items():  # every call comes after those it waits for
        lengths[name] = call.length + max((lengths[other] for other in call.after), default=0)
    return max(lengths.values())


@given(st.lists(chains, min_size=1, max_size=5), st.integers(1, 3), limits)
@settings(max_examples=60, deadline=None)
def test_atlas_on_chains_is_plas(programs: list[ToyProgram], slots: int, changes: dict[str, object]) -> None:
    named = {chr(65 + i): program for i, program in enumerate(programs)}
    plas, atlas = (run(Core(unit_settings(policy, **changes)), slots, named) for policy in ("plas", "atlas"))
    assert plas.running == atlas.running
