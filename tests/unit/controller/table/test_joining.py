"""How a replica's view and the store's entry become one."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_controller.table.entry import ProgramEntry, State, tombstone
from autellix_controller.table.joining import join
from autellix_wire.records import ProgramTotals

BASE = ProgramEntry(id="p", owner="o", session="s", created_ms=100)

totals = st.dictionaries(
    st.sampled_from(["a.1", "a.2", "b.1"]),
    st.builds(ProgramTotals, service_ms=st.floats(0, 100), calls=st.integers(0, 5)),
    max_size=3,
)


def entries(*states: State) -> st.SearchStrategy[ProgramEntry]:
    made = st.builds(
        ProgramEntry,
        id=st.just("p"),
        owner=st.just("o"),
        session=st.just("s"),
        state=st.sampled_from(states),
        engine=st.sampled_from([None, "a", "b"]),
        path_ms=st.floats(0, 100),
        wait_ms=st.floats(0, 100),
        totals=totals,
        created_ms=st.integers(100, 104),
        last_arrival_ms=st.integers(0, 10),
        last_completion_ms=st.integers(0, 10),
    )
    return made.map(lambda entry: tombstone(entry) if entry.state == "ended" else entry)


any_entry = entries("active", "ended")


@settings(deadline=None)
@given(any_entry, any_entry, st.booleans())
def test_joining_again_changes_nothing(stored: ProgramEntry, local: ProgramEntry, create: bool) -> None:
    joined = join(stored, local, create=create)
    if joined is not None:
        assert join(joined, local, create=create) in (None, joined)
        assert join(stored, joined, create=create) == joined


@settings(deadline=None)
@given(any_entry, any_entry, st.booleans())
def test_an_end_is_final_for_its_life(stored: ProgramEntry, local: ProgramEntry, create: bool) -> None:
    joined = join(stored, local, create=create)
    ends = [entry.created_ms for entry in (stored, local) if entry.state == "ended"]
    if joined is not None and joined.state == "active" and stored.state == "ended":
        assert joined.created_ms > max(ends)


@settings(deadline=None)
@given(entries("active"), entries("active"), st.booleans())
def test_the_stores_pin_wins(stored: ProgramEntry, local: ProgramEntry, create: bool) -> None:
    joined = join(stored, local, create=create)
    if joined is not None and stored.engine is not None:
        assert joined.engine == stored.engine


@settings(deadline=None)
@given(entries("active"), entries("active"), st.booleans())
def test_figures_never_shrink(stored: ProgramEntry, local: ProgramEntry, create: bool) -> None:
    joined = join(stored, local, create=create)
    if joined is not None:
        assert joined.path_ms >= stored.path_ms
        assert joined.service_ms >= stored.service_ms
        assert joined.last_activity_ms >= max(stored.last_arrival_ms, stored.last_completion_ms)


def test_accounting_of_an_entry_that_is_gone_is_dropped() -> None:
    assert join(None, BASE, create=False) is None


def test_an_entry_that_may_be_made_is_made() -> None:
    assert join(None, BASE, create=True) == BASE


def test_accounting_of_a_former_life_is_dropped() -> None:
    present = msgspec.structs.replace(BASE, created_ms=200)
    assert join(present, msgspec.structs.replace(BASE, path_ms=5.0), create=False) is None


@pytest.mark.parametrize("create", [True, False])
def test_accounting_does_not_bring_an_ended_program_back(create: bool) -> None:
    assert join(tombstone(BASE), msgspec.structs.replace(BASE, path_ms=5.0), create=create) is None


def test_a_later_opening_follows_an_end() -> None:
    later = msgspec.structs.replace(BASE, created_ms=101)
    assert join(tombstone(BASE), later, create=True) == later


def test_an_end_known_here_ends_the_entry_of_a_restored_store() -> None:
    stored = msgspec.structs.replace(BASE, engine="a", path_ms=5.0)
    assert join(stored, tombstone(BASE), create=True) == tombstone(stored)


def test_two_openings_that_did_not_meet_become_one_life_from_the_earlier_on() -> None:
    stored = msgspec.structs.replace(BASE, created_ms=200, engine="a", path_ms=9.0)
    local = msgspec.structs.replace(BASE, created_ms=100, engine="b", wait_ms=4.0)
    joined = join(stored, local, create=True)
    assert joined == msgspec.structs.replace(stored, created_ms=100, wait_ms=4.0)
