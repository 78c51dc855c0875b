from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.routing.decide import EngineView, NoEngine, Rules, Snapshot, decide

RULES = Rules(threshold_tokens=2048, spill_ratio=1.5, spill_calls=8)


def engines(**used: int) -> tuple[EngineView, ...]:
    return tuple(EngineView(name, count) for name, count in used.items())


def updating(old: dict[str, int], new: dict[str, int]) -> tuple[EngineView, ...]:
    """Engines in the middle of a rolling update."""
    return tuple(EngineView(name, count, outdated=True) for name, count in old.items()) + engines(**new)


names = st.sampled_from(["a", "b", "c", "d"])
views = st.dictionaries(names, st.integers(0, 100), min_size=1).map(lambda used: engines(**used))
mixed = st.dictionaries(names, st.tuples(st.integers(0, 100), st.booleans()), min_size=1).map(
    lambda found: tuple(EngineView(name, count, outdated) for name, (count, outdated) in found.items())
)
rules = st.builds(
    Rules, spill_ratio=st.floats(1, 5), spill_calls=st.integers(1, 20), spill_tokens=st.integers(1, 10_000)
)
lengths = st.integers(0, 100_000)
snapshots = st.builds(
    Snapshot,
    program=st.text(min_size=1, max_size=8),
    engines=views,
    pin=st.none() | names,
    short=st.booleans(),
    tried=st.frozensets(names, max_size=2),
)


@pytest.mark.parametrize(
    ("snapshot", "engine", "reason", "move_pin"),
    [
        (Snapshot("p", engines(a=3, b=1), short=True, pin="a"), "b", "short", False),
        (Snapshot("p", engines(a=3, b=1)), "b", "new", True),
        (Snapshot("p", engines(a=3, b=1), pin="a"), "a", "pinned", False),
        (Snapshot("p", engines(a=3, b=1), pin="gone"), "b", "new", True),
        (Snapshot("p", engines(a=9, b=1), pin="a"), "a", "pinned", False),
        (Snapshot("p", engines(a=10, b=1), pin="a"), "b", "spilled", True),
        (Snapshot("p", engines(a=10, b=1), pin="a", tokens=4096), "a", "pinned", False),
        (Snapshot("p", engines(a=11, b=1), pin="a", tokens=4096), "b", "spilled", True),
        (Snapshot("p", engines(a=0, b=5), pin="a", tried=frozenset("a")), "b", "spilled", False),
        (Snapshot("p", engines(a=50)), "a", "only", True),
        (Snapshot("p", engines(a=50), pin="a"), "a", "only", False),
        (Snapshot("p", engines(a=50), short=True), "a", "only", False),
    ],
)
def test_algorithm_2_and_its_way_out(snapshot: Snapshot, engine: str, reason: str, move_pin: bool) -> None:
    decision = decide(snapshot, RULES)
    assert (decision.engine, decision.reason, decision.move_pin) == (engine, reason, move_pin)


@pytest.mark.parametrize(
    ("snapshot", "engine", "reason", "move_pin"),
    [
        (Snapshot("p", updating({"a": 1}, {"b": 5})), "b", "new", True),
        (Snapshot("p", updating({"a": 1}, {"b": 5}), pin="gone"), "b", "new", True),
        (Snapshot("p", updating({"a": 1}, {"b": 6})), "a", "new", True),
        (Snapshot("p", updating({"a": 1}, {"b": 5, "c": 4})), "c", "new", True),
        (Snapshot("p", updating({"a": 1, "b": 0}, {})), "b", "new", True),
        (Snapshot("p", updating({"a": 1}, {"b": 1}), tried=frozenset("b")), "a", "new", True),
        # What is pinned stays until its engine goes; what may go anywhere, or leaves a crowd, goes where most is free.
        (Snapshot("p", updating({"a": 5}, {"b": 1}), pin="a"), "a", "pinned", False),
        (Snapshot("p", updating({"a": 1}, {"b": 5}), short=True), "a", "short", False),
        (Snapshot("p", updating({"a": 1, "c": 20}, {"b": 5}), pin="c"), "a", "spilled", True),
    ],
)
def test_a_program_that_needs_an_engine_gets_one_that_stays_unless_it_is_busier(
    snapshot: Snapshot, engine: str, reason: str, move_pin: bool
) -> None:
    decision = decide(snapshot, RULES)
    assert (decision.engine, decision.reason, decision.move_pin) == (engine, reason, move_pin)


@given(mixed, st.text(min_size=1, max_size=8), rules)
def test_an_engine_that_stays_is_never_passed_over_for_one_that_goes_and_is_as_busy(
    engine_views: tuple[EngineView, ...], program: str, rule: Rules
) -> None:
    if len(engine_views) == 1:
        return
    used = {view.name: view for view in engine_views}
    chosen = used[decide(Snapshot(program, engine_views), rule).engine]
    if chosen.outdated:
        assert all(view.outdated or view.used > chosen.used for view in engine_views)


@given(st.integers(1, 12), st.integers(2, 6))
def test_in_a_rolling_update_with_one_engine_more_every_program_moves_once(programs: int, size: int) -> None:
    names_of_old = [f"old-{number}" for number in range(size)]
    first = engines(**dict.fromkeys(names_of_old, 0))
    pins = {f"p{number}": decide(Snapshot(f"p{number}", first), RULES).engine for number in range(programs)}
    moves = dict.fromkeys(pins, 0)
    new: list[str] = []
    for number, goes in enumerate(names_of_old):
        new.append(f"new-{number}")
        left = [name for name in names_of_old[number:] if name != goes]
        there = updating(dict.fromkeys(left, 0), dict.fromkeys(new, 0))
        for program, pin in pins.items():
            decision = decide(Snapshot(program, there, pin=pin), RULES)
            moves[program] += decision.move_pin
            pins[program] = decision.engine
    assert set(moves.values()) == {1}


def test_without_engines_there_is_no_decision() -> None:
    with pytest.raises(NoEngine):
        decide(Snapshot("p", ()), RULES)
    with pytest.raises(NoEngine):
        decide(Snapshot("p", engines(a=1), tried=frozenset("a")), RULES)


@given(snapshots, rules)
def test_a_pin_moves_to_another_engine_and_never_for_a_short_call(snapshot: Snapshot, rule: Rules) -> None:
    if {view.name for view in snapshot.engines} <= snapshot.tried:
        return
    decision = decide(snapshot, rule)
    if decision.move_pin:
        assert decision.engine != snapshot.pin
        assert not snapshot.short


@given(snapshots, rules)
def test_a_call_that_may_go_anywhere_goes_to_the_least_used(snapshot: Snapshot, rule: Rules) -> None:
    left = [view.used for view in snapshot.engines if view.name not in snapshot.tried]
    if not left:
        return
    decision = decide(snapshot, rule)
    used = {view.name: view.used for view in snapshot.engines}
    if decision.reason != "pinned":
        assert used[decision.engine] == min(left)


@given(mixed, st.text(min_size=1, max_size=8), names, rules, lengths)
def test_a_program_that_just_moved_stays(
    engine_views: tuple[EngineView, ...], program: str, pin: str, rule: Rules, tokens: int
) -> None:
    """Hysteresis: the call that moved a pin is not followed by one that moves it again, whatever its length."""
    snapshot = Snapshot(program, engine_views, pin=pin, tokens=tokens)
    first = decide(snapshot, rule)
    if not first.move_pin:
        return
    after = tuple(
        EngineView(view.name, view.used + (view.name == first.engine), view.outdated) for view in engine_views
    )
    second = decide(Snapshot(program, after, pin=first.engine), rule)
    assert second.engine == first.engine
    assert not second.move_pin


@given(views, rules, st.integers(0, 60))
def test_parallel_calls_of_one_program_move_its_pin_rarely(
    engine_views: tuple[EngineView, ...], rule: Rules, calls: int
) -> None:
    """Every move needs ``spill_calls`` calls more on one engine than the move before: moves grow with the root."""
    used = {view.name: view.used for view in engine_views}
    pin: str | None = next(iter(used))
    moved_at = []
    for number in range(calls):
        decision = decide(Snapshot("p", engines(**used), pin=pin), rule)
        used[decision.engine] += 1
        if decision.move_pin:
            pin, moved = decision.engine, number
            moved_at.append(moved)
    assert all(later - earlier >= rule.spill_calls for earlier, later in pairwise(moved_at))


@given(views, names, rules, lengths, lengths)
def test_the_longer_the_prompt_the_more_it_takes_to_leave(
    engine_views: tuple[EngineView, ...], pin: str, rule: Rules, one: int, other: int
) -> None:
    shorter, longer = (
        decide(Snapshot("p", engine_views, pin=pin, tokens=tokens), rule) for tokens in sorted((one, other))
    )
    if longer.reason == "spilled":
        assert shorter == longer


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=60), rules, lengths)
def test_a_move_is_undone_only_by_a_swing_of_the_load(others: list[str], rule: Rules, tokens: int) -> None:
    """No flapping: since the last move, the engine that is left has gained ``spill_calls`` calls at least on the one
    that is chosen."""
    used = dict.fromkeys("abc", 0)
    pin, left = "a", dict(used)
    for engine in others:
        used[engine] += 1
        decision = decide(Snapshot("p", engines(**used), pin=pin, tokens=tokens), rule)
        if decision.move_pin:
            gained = used[pin] - left[pin] - (used[decision.engine] - left[decision.engine])
            assert gained >= rule.spill_calls
            pin, left = decision.engine, dict(used)


def test_ties_spread_programs_over_idle_engines_and_agree_between_replicas() -> None:
    idle = engines(a=0, b=0, c=0, d=0)
    chosen = [decide(Snapshot(f"program-{n}", idle), RULES).engine for n in range(400)]
    assert {name: 60 < chosen.count(name) < 140 for name in "abcd"} == dict.fromkeys("abcd", True)
    assert chosen == [decide(Snapshot(f"program-{n}", idle), RULES).engine for n in range(400)]
