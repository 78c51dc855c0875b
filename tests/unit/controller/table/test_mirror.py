"""The mirror keeps the newest of what it is told, in whatever order replies and events come."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_controller.table.entry import ProgramEntry, tombstone
from autellix_controller.table.mirror import Mirror, Stored

ENTRY = ProgramEntry(id="p", owner="o", session="s", created_ms=100)


def with_path(path_ms: float, **others: object) -> ProgramEntry:
    return msgspec.structs.replace(ENTRY, path_ms=path_ms, **others)


def idle(entry: ProgramEntry) -> bool:
    return False


def in_use(entry: ProgramEntry) -> bool:
    return True


def mirror_of(*writes: tuple[ProgramEntry, int], keep: Callable[[ProgramEntry], bool] = idle) -> Mirror:
    mirror = Mirror(keep)
    for entry, revision in writes:
        mirror.put(entry.id, entry, revision)
        mirror.advance(revision)
    return mirror


def test_an_older_event_does_not_undo_a_newer_write() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.learn("p", with_path(9.0), 8)
    mirror.put("p", with_path(7.0), 7)
    assert mirror.get("p") == with_path(9.0)
    assert mirror.stored("p").revision == 8


def test_an_older_deletion_does_not_undo_a_newer_write() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.learn("p", with_path(9.0), 8)
    mirror.delete("p", 7)
    assert mirror.get("p") == with_path(9.0)


def test_a_reply_that_the_watch_has_overtaken_tells_nothing() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.delete("p", 9)
    mirror.advance(9)
    mirror.learn("p", with_path(7.0), 7)
    assert mirror.get("p") is None
    mirror.put("p", ENTRY, 10)
    mirror.advance(12)
    mirror.learn_absent("p", 9)
    assert mirror.get("p") == ENTRY


def test_a_reply_ahead_of_the_watch_tells_of_an_expiry() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.learn_absent("p", 6)
    assert mirror.get("p") is None
    assert mirror.count() == 0


def test_what_is_not_written_is_seen() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.note(with_path(9.0))
    assert mirror.get("p") == with_path(9.0)
    assert mirror.stored("p").entry == ENTRY
    assert mirror.take_dirty() == ["p"]


def test_others_figures_and_pin_are_joined_with_what_is_not_written() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.note(with_path(9.0))
    mirror.put("p", with_path(3.0, wait_ms=4.0, engine="e"), 6)
    assert mirror.get("p") == with_path(9.0, wait_ms=4.0, engine="e")


def test_a_write_that_succeeded_is_no_longer_pending() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.note(with_path(9.0))
    mirror.take_dirty()
    change = mirror.change("p")
    assert change is not None
    mirror.settle(change, change.entry, 6)
    assert mirror.change("p") is None
    assert mirror.stored("p") == Stored(with_path(9.0), 6)


def test_what_changed_during_a_write_stays_pending() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.note(with_path(9.0))
    mirror.take_dirty()
    change = mirror.change("p")
    assert change is not None
    mirror.note(with_path(11.0))
    mirror.settle(change, change.entry, 6)
    assert mirror.get("p") == with_path(11.0)
    assert mirror.take_dirty() == ["p"]


def test_an_expired_entry_is_dropped_with_its_accounting_when_it_is_idle() -> None:
    mirror = mirror_of((ENTRY, 5), keep=idle)
    mirror.note(with_path(9.0))
    mirror.delete("p", 6)
    assert mirror.get("p") is None
    assert mirror.take_dirty() == []
    assert mirror.count() == 0


def test_an_expired_entry_that_is_in_use_is_made_again() -> None:
    mirror = mirror_of((with_path(9.0, engine="e"), 5), keep=in_use)
    mirror.delete("p", 6)
    assert mirror.get("p") == with_path(9.0, engine="e")
    assert mirror.take_dirty() == ["p"]
    assert mirror.stored("p").revision == 0


def test_an_ended_entry_is_never_made_again_by_its_expiry() -> None:
    mirror = mirror_of((tombstone(ENTRY), 5), keep=in_use)
    mirror.delete("p", 6)
    assert mirror.get("p") is None


def test_a_listing_drops_what_is_gone_and_keeps_what_is_newer_than_it() -> None:
    other = msgspec.structs.replace(ENTRY, id="q")
    mirror = mirror_of((ENTRY, 5), (other, 6))
    mirror.learn("q", msgspec.structs.replace(other, path_ms=2.0), 11)
    third = msgspec.structs.replace(ENTRY, id="r")
    mirror.load({"r": Stored(third, 9)}, 10, same_history=True)
    assert mirror.get("p") is None
    assert mirror.get("q") == msgspec.structs.replace(other, path_ms=2.0)
    assert mirror.get("r") == third
    assert [entry.id for entry in mirror.page("o", "", 10)] == ["q", "r"]


def test_a_wiped_store_gets_back_what_is_in_use() -> None:
    ended = tombstone(msgspec.structs.replace(ENTRY, id="q"))
    mirror = mirror_of((with_path(9.0, engine="e"), 500), (ended, 501), keep=in_use)
    mirror.load({}, 3, same_history=False)
    assert mirror.revision == 3
    assert sorted(mirror.take_dirty()) == ["p", "q"]
    assert mirror.get("p") == with_path(9.0, engine="e")
    assert mirror.get("q") == ended
    assert mirror.stored("p").revision == 0


def test_a_restored_store_keeps_its_pin_and_gets_the_higher_figures() -> None:
    mirror = mirror_of((with_path(9.0, engine="late"), 500), keep=in_use)
    mirror.load({"p": Stored(with_path(4.0, engine="early"), 2)}, 3, same_history=False)
    assert mirror.get("p") == with_path(9.0, engine="early")
    assert mirror.take_dirty() == ["p"]


def test_a_restored_store_that_has_everything_is_not_written_to() -> None:
    mirror = mirror_of((ENTRY, 500), keep=in_use)
    mirror.load({"p": Stored(ENTRY, 2)}, 3, same_history=False)
    assert mirror.take_dirty() == []


def test_an_unreadable_entry_is_counted_and_never_overwritten() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.put("p", None, 6)
    assert mirror.unreadable == 1
    assert mirror.get("p") is None
    assert mirror.count() == 0
    mirror.note(ENTRY, create=True)
    assert mirror.change("p") is None
    assert mirror.get("p") == ENTRY
    mirror.put("p", with_path(2.0), 7)
    assert mirror.unreadable == 0
    assert mirror.change("p") is not None


def test_an_arrival_alone_is_not_worth_a_write() -> None:
    mirror = mirror_of((ENTRY, 5))
    mirror.note(with_path(0.0, last_arrival_ms=150), dirty=False)
    assert mirror.take_dirty() == []
    assert mirror.get("p") == with_path(0.0, last_arrival_ms=150)
    mirror.mark_all_dirty()
    assert mirror.take_dirty() == ["p"]


@settings(deadline=None)
@given(st.permutations([(with_path(float(revision)), revision) for revision in range(1, 7)]))
def test_replies_in_any_order_leave_the_newest(writes: list[tuple[ProgramEntry, int]]) -> None:
    mirror = Mirror(idle)
    for entry, revision in writes:
        mirror.learn("p", entry, revision)
    assert mirror.stored("p") == Stored(with_path(6.0), 6)
    assert mirror.count() == 1


operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "note", "create", "settle", "load", "end", "unreadable"]),
        st.sampled_from(["p", "q", "r"]),
        st.sampled_from(["o1", "o2"]),
    ),
    max_size=40,
)


@pytest.mark.parametrize("keep", [idle, in_use])
@settings(deadline=None)
@given(operations=operations)
def test_count_and_pages_always_agree_with_the_entries(
    keep: Callable[[ProgramEntry], bool], operations: list[tuple[str, str, str]]
) -> None:
    mirror = Mirror(keep)
    for revision, (operation, program, owner) in enumerate(operations, start=1):
        entry = ProgramEntry(id=program, owner=owner, session="s", created_ms=revision, path_ms=revision)
        match operation:
            case "put":
                mirror.put(program, entry, revision)
            case "end":
                mirror.put(program, tombstone(entry), revision)
            case "unreadable":
                mirror.put(program, None, revision)
            case "delete":
                mirror.delete(program, revision)
            case "create":
                mirror.note(entry, create=True)
            case "load":
                mirror.load({program: Stored(entry, revision)}, revision, same_history=revision % 2 == 0)
            case "note" if (known := mirror.active(program)) is not None:
                mirror.note(msgspec.structs.replace(known, path_ms=revision))
            case "settle" if (change := mirror.change(program)) is not None:
                mirror.settle(change, change.entry, revision)
        active = [found for name in ("p", "q", "r") if (found := mirror.active(name)) is not None]
        assert mirror.count() == len(active)
        for listed in ("o1", "o2"):
            assert list(mirror.page(listed, "", 10)) == [found for found in active if found.owner == listed]
        assert mirror.unreadable == sum(
            mirror.stored(name).revision > 0 and mirror.stored(name).entry is None for name in ("p", "q", "r")
        )
