"""The process table of a controller that runs alone: one process, nothing survives it."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from autellix_controller.table.activity import RunningCalls
from autellix_controller.table.entry import (
    ProgramEntry,
    belongs,
    next_life,
    split_engine_program,
    tombstone,
    with_record,
)
from autellix_controller.table.index import OwnerIndex, PinCounts
from autellix_controller.table.interface import TableHealth
from autellix_wire.records import CallRecord

_log = logging.getLogger(__name__)


class MemoryTable:
    """``ProcessTable`` in one process.

    Nobody else drops what was idle for the session timeout, so whatever is asked or told, that is done first.
    """

    def __init__(
        self,
        *,
        replica: str,
        session_timeout_seconds: float,
        clock_ms: Callable[[], int],
        changed: Callable[[str], None] = lambda program: None,
        expired: Callable[[ProgramEntry], None] = lambda entry: None,
    ) -> None:
        """``clock_ms`` is the clock that the times come from which the methods are told; ``changed`` is told each
        program whose entry was made, changed or dropped, ``expired`` each one that expired."""
        self._expired = expired
        self._replica = replica
        self._changed = changed
        self._clock_ms = clock_ms
        self._timeout_ms = int(session_timeout_seconds * 1000)
        self._entries: OrderedDict[str, ProgramEntry] = OrderedDict()
        """Ended ones included, in order of their last activity here."""
        self._seen_ms: dict[str, int] = {}
        self._next_expiry_ms = 0
        """Nothing expires before; what is used meanwhile only makes it later."""
        self._active = OwnerIndex()
        self._pins = PinCounts()
        self._running = RunningCalls()

    async def start(self) -> None:
        """Nothing to load, and something to know."""
        _log.warning(
            "the process table is in memory only: sessions end with this process, and no other replica sees them"
        )

    async def close(self) -> None:
        """Nothing to write."""

    def restore(self, entries: Iterable[ProgramEntry]) -> None:
        """Takes in the entries of a former process, before anything else happens."""
        for entry in sorted(entries, key=lambda entry: entry.last_activity_ms):
            self._entries[entry.id] = entry
            self._seen_ms[entry.id] = entry.last_activity_ms
        active = [entry for entry in self._entries.values() if entry.state == "active"]
        self._active.rebuild((entry.owner, entry.id) for entry in active)
        self._pins.rebuild(entry.engine for entry in active)

    def get(self, program: str) -> ProgramEntry | None:
        """See ``ProcessTable``."""
        self.expire()
        return self._entries.get(program)

    def page(self, owner: str, after: str, limit: int) -> Sequence[ProgramEntry]:
        """See ``ProcessTable``."""
        self.expire()
        return [self._entries[program] for program in self._active.page(owner, after, limit)]

    def count(self) -> int:
        """See ``ProcessTable``."""
        self.expire()
        return len(self._active)

    def pins(self) -> Mapping[str, int]:
        """See ``ProcessTable``."""
        self.expire()
        return self._pins.counts()

    async def open(self, program: str, *, owner: str, session: str, now_ms: int) -> ProgramEntry:
        """See ``ProcessTable``."""
        known = self.get(program)
        if known is not None and known.state == "active":
            return known
        fresh = ProgramEntry(id=program, owner=owner, session=session, created_ms=now_ms, last_arrival_ms=now_ms)
        entry = next_life(known, fresh)
        self._set(entry, now_ms)
        return entry

    async def pin(self, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        """See ``ProcessTable``; never unavailable."""
        entry = self._active_entry(program)
        if entry is None:
            raise KeyError(program)
        if entry.engine != expected:
            return entry
        entry = msgspec.structs.replace(entry, engine=engine)
        self._pins.moved(expected, engine)
        self._entries[program] = entry
        self._changed(program)
        return entry

    async def end(self, program: str, *, cancel: bool = False) -> bool:
        """See ``ProcessTable``; never unavailable."""
        entry = self._active_entry(program)
        if entry is None:
            return False
        self._entries[program] = tombstone(entry, cancel=cancel)
        self._active.remove(entry.owner, program)
        self._pins.moved(entry.engine, None)
        self._changed(program)
        return True

    def arrived(self, program: str, now_ms: int) -> None:
        """See ``ProcessTable``."""
        entry = self._active_entry(program)  # before the call counts as activity
        self._running.arrived(program)
        if entry is not None:
            last_arrival_ms = max(entry.last_arrival_ms, now_ms)
            self._set(msgspec.structs.replace(entry, last_arrival_ms=last_arrival_ms), now_ms)

    def departed(self, program: str, now_ms: int) -> None:
        """See ``ProcessTable``."""
        self._running.departed(program)
        if program in self._entries:
            self._touch(program, now_ms)

    def apply(self, record: CallRecord, now_ms: int) -> None:
        """See ``ProcessTable``."""
        program, life = split_engine_program(record.program)
        entry = self._active_entry(program)
        if entry is not None and belongs(entry, life):
            self._set(with_record(entry, record, now_ms), now_ms)

    def expire(self) -> None:
        """Drops what was idle for the session timeout."""
        now_ms = self._clock_ms()
        if now_ms < self._next_expiry_ms:
            return  # nearly always, and this is asked several times for each call
        self._next_expiry_ms = now_ms + self._timeout_ms
        while self._entries:
            program, entry = next(iter(self._entries.items()))
            if now_ms - self._seen_ms[program] < self._timeout_ms:
                self._next_expiry_ms = self._seen_ms[program] + self._timeout_ms
                return
            if program in self._running:
                self._touch(program, now_ms)
                continue
            del self._entries[program]
            del self._seen_ms[program]
            self._changed(program)
            if entry.state == "active":
                self._active.remove(entry.owner, program)
                self._pins.moved(entry.engine, None)
                self._expired(entry)

    async def flush(self) -> None:
        """Nothing to write."""

    def live_replicas(self) -> frozenset[str]:
        """This one only."""
        return frozenset({self._replica})

    def health(self) -> TableHealth:
        """Always well."""
        return TableHealth(loaded=True, connected=True)

    def _active_entry(self, program: str) -> ProgramEntry | None:
        entry = self.get(program)
        return entry if entry is not None and entry.state == "active" else None

    def _set(self, entry: ProgramEntry, now_ms: int) -> None:
        known = self._entries.get(entry.id)
        if known is None or known.state == "ended":
            self._active.add(entry.owner, entry.id)
            self._pins.moved(None, entry.engine)
        self._entries[entry.id] = entry
        self._changed(entry.id)
        self._touch(entry.id, now_ms)

    def _touch(self, program: str, now_ms: int) -> None:
        self._seen_ms[program] = max(now_ms, self._seen_ms.get(program, 0))
        self._entries.move_to_end(program)
