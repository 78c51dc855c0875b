import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_engine.policy.programs import Program, ProgramTable

amounts = st.floats(min_value=0, max_value=1e6, allow_nan=False)
figures = st.fixed_dictionaries({"service_ms": amounts, "path_ms": amounts, "wait_ms": amounts})


def _seen(program: Program) -> tuple[float, float, float]:
    return program.service_ms, program.path_ms, program.wait_ms


@given(st.lists(figures, max_size=4), amounts)
def test_merges_commute_and_repeats_change_nothing(brought: list[dict[str, float]], own: float) -> None:
    seen = set()
    for order in itertools.permutations([*brought, *brought[:1]]):
        program = Program("p", own_ms=own)
        for each in order:
            program.merge(**each)
        seen.add(_seen(program))
    assert len(seen) == 1


@given(st.lists(figures, max_size=6), amounts)
def test_figures_never_shrink(brought: list[dict[str, float]], own: float) -> None:
    program = Program("p", own_ms=own)
    for each in brought:
        before = _seen(program)
        program.merge(**each)
        assert all(a >= b for a, b in zip(_seen(program), before, strict=True))


@given(
    st.lists(
        st.tuples(st.sampled_from(["here", "elsewhere", "told here", "told elsewhere", "sent"]), st.integers(1, 1_000)),
        max_size=40,
    )
)
def test_service_here_and_elsewhere_is_never_counted_twice(events: list[tuple[str, int]]) -> None:
    """Calls end on two engines, the sender learns of them late, and sends what it knows with new calls."""
    program = Program("p")
    true = {"here": 0, "elsewhere": 0}
    known = {"here": 0, "elsewhere": 0}
    for event, amount in events:
        match event:
            case "here":
                true["here"] += amount
                program.own_ms += amount
            case "elsewhere":
                true["elsewhere"] += amount
            case "told here" | "told elsewhere":
                where = event.removeprefix("told ")
                known[where] = min(true[where], known[where] + amount)
            case "sent":
                program.merge(service_ms=sum(known.values()), path_ms=0, wait_ms=0)
        assert true["here"] <= program.service_ms <= sum(true.values())
    program.merge(service_ms=sum(true.values()), path_ms=0, wait_ms=0)
    assert program.service_ms == sum(true.values())


def test_newest_own_service_counts_on_top_of_what_a_request_brought() -> None:
    program = Program("p", own_ms=100)
    program.merge(service_ms=400, path_ms=0, wait_ms=0)  # 300 of it elsewhere
    program.own_ms += 50
    assert program.service_ms == 450
    program.merge(service_ms=400, path_ms=0, wait_ms=0)  # sent before the sender knew of the last 50
    assert program.service_ms == 450


def _table() -> ProgramTable:
    return ProgramTable(idle_ms=100, limit=3)


def _visit(table: ProgramTable, name: str, now: float) -> None:
    table.leave(table.enter(name), now)


def test_an_idle_program_is_forgotten_after_its_time() -> None:
    table = _table()
    _visit(table, "a", now=0)
    _visit(table, "b", now=50)
    table.expire(99.9)
    assert len(table) == 2
    table.expire(100)
    assert (table.get("a"), len(table), table.expired) == (None, 1, 1)
    table.check_integrity()


def test_activity_keeps_a_program() -> None:
    table = _table()
    _visit(table, "a", now=0)
    _visit(table, "a", now=90)
    table.expire(150)
    assert table.get("a") is not None


def test_a_program_with_calls_never_expires() -> None:
    table = _table()
    table.enter("a")
    table.expire(1e9)
    assert table.get("a") is not None


def test_a_full_table_forgets_the_program_idle_for_longest() -> None:
    table = _table()
    for now, name in enumerate(["a", "b", "c"]):
        _visit(table, name, now)
    _visit(table, "a", now=10)
    _visit(table, "d", now=11)
    assert table.get("b") is None
    assert {name for name in "abcd" if table.get(name)} == {"a", "c", "d"}
    assert table.evicted == 1
    table.check_integrity()


def test_a_table_full_of_busy_programs_grows_beyond_its_limit_and_shrinks_again() -> None:
    table = _table()
    programs = [table.enter(f"{i}") for i in range(5)]
    assert len(table) == 5
    for program in programs:
        table.leave(program, now=1)
    _visit(table, "x", now=2)
    assert len(table) == 3
    table.check_integrity()


@pytest.mark.parametrize("busy", [False, True])
def test_an_ended_program_goes_at_once_or_with_its_last_call(busy: bool) -> None:
    table = _table()
    program = table.enter("a")
    if not busy:
        table.leave(program, now=1)
    table.end("a")
    assert (table.get("a") is not None) == busy
    if busy:
        table.leave(program, now=2)
    assert table.get("a") is None
    table.check_integrity()


def test_ending_a_program_that_is_unknown_does_nothing() -> None:
    _table().end("nobody")
