"""A replica's copy of the table: what the store holds, what is not written yet, and what follows from both. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.index import OwnerIndex, PinCounts
from autellix_controller.table.joining import join


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An entry as a revision of the store wrote it; ``entry`` is None if it is not readable."""

    entry: ProgramEntry | None
    revision: int


class Change(msgspec.Struct, frozen=True, gc=False):
    """A replica's view of an entry that the store does not hold yet."""

    entry: ProgramEntry
    create: bool
    """Made if the store has no such entry; otherwise dropped then."""


_ABSENT = Stored(entry=None, revision=0)


class Mirror:
    """Keeps the newest of everything it is told, in whatever order it is told.

    The watch tells all changes in order (``put``, ``delete``, ``advance``, ``load``); replies to own calls tell single
    keys, earlier or later than the watch (``learn``, ``settle``).
    ``keep`` says of an entry that the store no longer has whether it must come back because it is not idle;
    ``expired`` is told of active ones that are gone for good.
    """

    def __init__(
        self, keep: Callable[[ProgramEntry], bool], expired: Callable[[ProgramEntry], None] = lambda entry: None
    ) -> None:
        self._keep, self._expired = keep, expired
        self._stored: dict[str, Stored] = {}
        self._changes: dict[str, Change] = {}
        self._dirty: dict[str, None] = {}
        self._active = OwnerIndex()
        self._pins = PinCounts()
        self.revision = 0
        """Up to here the watch has told everything."""
        self.unreadable = 0

    # What the replica knows.

    def get(self, program: str) -> ProgramEntry | None:
        """The entry, unwritten figures included."""
        if (change := self._changes.get(program)) is not None:
            return change.entry
        stored = self._stored.get(program)
        return None if stored is None else stored.entry

    def active(self, program: str) -> ProgramEntry | None:
        """The entry if it is active."""
        entry = self.get(program)
        return entry if entry is not None and entry.state == "active" else None

    def stored(self, program: str) -> Stored:
        """What the store holds; revision 0 if it has no such key."""
        return self._stored.get(program, _ABSENT)

    def page(self, owner: str, after: str, limit: int) -> Sequence[ProgramEntry]:
        """Active entries of one owner in order of id."""
        ids = self._active.page(owner, after, limit)
        return [entry for program in ids if (entry := self.active(program)) is not None]

    def count(self) -> int:
        """Number of active entries."""
        return len(self._active)

    def pins(self) -> Mapping[str, int]:
        """Active programs by the engine that they are pinned to."""
        return self._pins.counts()

    # What the replica does.

    def note(self, entry: ProgramEntry, *, create: bool = False, dirty: bool = True) -> None:
        """A new local view; ``dirty``: it is worth a write of its own."""
        known = self._changes.get(entry.id)
        before = self.get(entry.id) if known is None else known.entry
        self._changes[entry.id] = Change(entry, create or (known is not None and known.create))
        self._reindex(before, entry)
        if dirty:
            self._dirty[entry.id] = None

    def mark_all_dirty(self) -> None:
        """Everything that is not written is worth a write now."""
        self._dirty.update(dict.fromkeys(self._changes))

    def mark_dirty(self, programs: Iterable[str]) -> None:
        """These are (still) to be written."""
        self._dirty.update((program, None) for program in programs if program in self._changes)

    def take_dirty(self) -> list[str]:
        """The programs to write; they count as written until they are marked again."""
        taken, self._dirty = self._dirty, {}
        return list(taken)

    def change(self, program: str) -> Change | None:
        """What is to be written; None if nothing is, or if what the store holds must not be overwritten."""
        stored = self.stored(program)
        return None if stored.revision and stored.entry is None else self._changes.get(program)

    @property
    def pending(self) -> int:
        """Programs with something to write."""
        return len(self._dirty)

    # What the store says.

    def settle(self, change: Change | None, entry: ProgramEntry, revision: int) -> None:
        """Our write of ``entry`` succeeded; ``change`` is what it was made from and is done with, if it is still the
        newest."""
        program = entry.id
        newest = self._changes.get(program)
        if newest is None or newest is not change:
            self.learn(program, entry, revision)
            return
        del self._changes[program]
        old = self._stored.get(program, _ABSENT)
        if revision > self.revision and revision > old.revision:
            self._stored[program] = Stored(entry, revision)
            self.unreadable -= _unreadable(old)
        self._reindex(newest.entry, self.get(program))

    def learn(self, program: str, entry: ProgramEntry | None, revision: int) -> None:
        """A reply says that ``revision`` wrote this entry (None: not readable)."""
        if revision > self.revision:
            self.put(program, entry, revision)

    def learn_absent(self, program: str, revision: int) -> None:
        """A reply says that at ``revision`` there was no such key."""
        if revision > self.revision:
            self.delete(program, revision)

    def put(self, program: str, entry: ProgramEntry | None, revision: int) -> None:
        """The key was written."""
        if revision > self.stored(program).revision:
            self._store(program, Stored(entry, revision))

    def delete(self, program: str, revision: int) -> None:
        """The key was deleted, which means that its lease expired."""
        if program not in self._stored or self._stored[program].revision > revision:
            return
        entry = self.get(program)
        if entry is not None and entry.state == "active" and self._keep(entry):
            self._changes[program] = Change(entry, create=True)
            self._dirty[program] = None
        self._store(program, None)
        if entry is not None and entry.state == "active" and self.get(program) is None:
            self._expired(entry)

    def advance(self, revision: int) -> None:
        """The watch has told everything up to this revision."""
        self.revision = max(self.revision, revision)

    def load(self, snapshot: Mapping[str, Stored], revision: int, *, same_history: bool) -> None:
        """Replaces everything by what the store held at ``revision``.

        In another history (the store was wiped, or restored from a backup) revisions mean nothing any more, and what
        this replica knows is put back where the store has less.
        """
        before = self._stored
        self._stored = dict(snapshot)
        self.revision = revision
        for program, stored in before.items():
            if same_history and stored.revision > revision:
                self._stored[program] = stored
            elif program not in self._stored or not same_history:
                self._restore(program, stored.entry, same_history=same_history)
        for program in list(self._changes):
            self._rejoin(program)
        self.unreadable = sum(stored.entry is None for stored in self._stored.values())
        known = self._stored.keys() | self._changes.keys()
        active = [entry for program in known if (entry := self.active(program)) is not None]
        self._active.rebuild((entry.owner, entry.id) for entry in active)
        self._pins.rebuild(entry.engine for entry in active)

    def _restore(self, program: str, entry: ProgramEntry | None, *, same_history: bool) -> None:
        change = self._changes.get(program)
        view = change.entry if change is not None else entry
        # In the same history a tombstone that is gone has done its duty; in another one its duty goes on.
        if view is None or (same_history and view.state == "ended") or not self._keep(view):
            return
        stored = self._stored.get(program)
        if stored is None or join(stored.entry, view, create=True) not in (None, stored.entry):
            self._changes[program] = Change(view, create=True)
            self._dirty[program] = None

    def _store(self, program: str, stored: Stored | None) -> None:
        before = self.get(program)
        old = self._stored.pop(program, _ABSENT)
        if stored is not None:
            self._stored[program] = stored
        self.unreadable += _unreadable(stored) - _unreadable(old)
        self._rejoin(program)
        self._reindex(before, self.get(program))

    def _rejoin(self, program: str) -> None:
        change = self._changes.get(program)
        stored = self._stored.get(program)
        if change is None or (stored is not None and stored.entry is None):
            return
        joined = join(None if stored is None else stored.entry, change.entry, create=change.create)
        nothing_new = stored is not None and joined == stored.entry and program not in self._dirty
        if joined is None or nothing_new:
            del self._changes[program]
            self._dirty.pop(program, None)
        elif joined != change.entry:
            self._changes[program] = Change(joined, change.create)

    def _reindex(self, before: ProgramEntry | None, after: ProgramEntry | None) -> None:
        if before is after:
            return
        self._pins.moved(_active_pin(before), _active_pin(after))
        owner_before = _active_owner(before)
        owner_after = _active_owner(after)
        if owner_before == owner_after:
            return
        if before is not None and owner_before is not None:
            self._active.remove(owner_before, before.id)
        if after is not None and owner_after is not None:
            self._active.add(owner_after, after.id)


def _active_pin(entry: ProgramEntry | None) -> str | None:
    """The engine of an active program; None of another one."""
    return entry.engine if entry is not None and entry.state == "active" else None


def _active_owner(entry: ProgramEntry | None) -> str | None:
    return entry.owner if entry is not None and entry.state == "active" else None


def _unreadable(stored: Stored | None) -> bool:
    return stored is not None and stored.revision > 0 and stored.entry is None
