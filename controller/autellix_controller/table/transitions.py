"""What moves by compare-and-swap: a program's start, its pin and its end."""

from collections.abc import Callable
from typing import Final

import msgspec

from autellix_controller.background import SingleFlight
from autellix_controller.table.entry import ProgramEntry, next_life, tombstone
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, encode_program
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Mirror
from autellix_controller.table.store import EtcdStore, LeaseGone, StoreAway, Swap
from autellix_controller.table.sync import learn

_ATTEMPTS: Final = 20


class Transitions:
    """Each transition decides on what the mirror knows, swaps, and decides again on what stood in its way.

    A reply that was lost is made good by reading: the swap is guarded by a revision, so it cannot take effect twice,
    and not at all once another one has.
    """

    def __init__(
        self, mirror: Mirror, store: EtcdStore, leases: ExpiryLeases, layout: Layout, wake_writer: Callable[[], None]
    ) -> None:
        self._mirror = mirror
        self._store = store
        self._leases = leases
        self._layout = layout
        self._wake_writer = wake_writer
        self._opening: SingleFlight[str, ProgramEntry] = SingleFlight()

    async def open(self, program: str, *, owner: str, session: str, now_ms: int) -> ProgramEntry:
        """See ``ProcessTable``. All callers of one program that come while it is being opened share one opening; it
        goes on when a caller is cancelled."""
        known = self._mirror.active(program)
        if known is not None:
            return known
        fresh = ProgramEntry(id=program, owner=owner, session=session, created_ms=now_ms, last_arrival_ms=now_ms)
        return await self._opening.run(program, lambda: self._open(fresh))

    async def pin(self, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        """See ``ProcessTable``."""
        self._require_contact()
        for _ in range(_ATTEMPTS):
            entry = self._mirror.active(program)
            if entry is None or entry.engine != expected:
                # The mirror may lag: only the store itself says who won.
                await self._read(program)
                entry = self._mirror.active(program)
                if entry is None:
                    raise KeyError(program)
                if entry.engine != expected:
                    return entry
            moved = msgspec.structs.replace(entry, engine=engine)
            if await self._swap(moved):
                return moved
        raise TableUnavailable(f"program {program} changed {_ATTEMPTS} times while its pin was to be moved")

    async def end(self, program: str, *, cancel: bool = False) -> bool:
        """See ``ProcessTable``."""
        self._require_contact()
        for _ in range(_ATTEMPTS):
            entry = self._mirror.active(program)
            if entry is None:
                await self._read(program)
                entry = self._mirror.active(program)
                if entry is None:
                    return False
            if await self._swap(tombstone(entry, cancel=cancel)):
                return True
        raise TableUnavailable(f"program {program} changed {_ATTEMPTS} times while it was to be ended")

    async def _open(self, fresh: ProgramEntry) -> ProgramEntry:
        if self._store.contact.claim():
            try:
                for _ in range(_ATTEMPTS):
                    fresh = next_life(self._mirror.get(fresh.id), fresh)
                    if not self._writable(fresh.id):
                        break
                    if await self._swap(fresh):
                        return fresh
                    found = self._mirror.active(fresh.id)
                    if found is not None:
                        return found
            except TableUnavailable:
                # Opened here all the same; the writer reconciles it with the store.
                pass
        known = self._mirror.active(fresh.id)
        if known is not None:
            return known
        self._mirror.note(fresh, create=True)
        self._wake_writer()
        return fresh

    async def _swap(self, entry: ProgramEntry) -> bool:
        """One try to make this the store's entry. If it failed, the mirror has learned what stood in the way.

        Raises TableUnavailable if the store cannot be reached, or was not written although nothing stood in the way.
        """
        program = entry.id
        if not self._writable(program):
            raise TableUnavailable(f"the entry of program {program} is damaged or of a newer schema")
        change = self._mirror.change(program)
        expected = self._mirror.stored(program).revision
        key = self._layout.program_key(program)
        try:
            lease = await self._leases.current()
            try:
                revision, (outcome,) = await self._store.swap([Swap(key, expected, encode_program(entry), lease)])
            except LeaseGone:
                self._leases.forget(lease)
                return False
        except StoreAway as error:
            await self._read(program)
            if self._mirror.stored(program).revision == expected:
                raise TableUnavailable(str(error)) from error
            return False
        if outcome.done:
            self._mirror.settle(change, entry, revision)
            return True
        learn(self._mirror, program, revision, outcome.current)
        return False

    async def _read(self, program: str) -> None:
        try:
            revision, value = await self._store.read(self._layout.program_key(program))
        except StoreAway as error:
            self._store.contact.unread()
            raise TableUnavailable(str(error)) from error
        learn(self._mirror, program, revision, value)

    def _writable(self, program: str) -> bool:
        stored = self._mirror.stored(program)
        return stored.revision == 0 or stored.entry is not None

    def _require_contact(self) -> None:
        if not self._store.contact.claim():
            raise TableUnavailable(self._store.contact.detail)
