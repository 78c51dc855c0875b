"""What moves by compare-and-swap: a program's start, its pin and its end."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from autellix_controller.table.entry import ProgramEntry, next_life, tombstone
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, decode_program, encode_program
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Mirror
from autellix_controller.table.store import EtcdStore, LeaseGone, StoreAway, Swap

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
        self._opening: dict[str, asyncio.Task[ProgramEntry]] = {}

    async def open(self, program: str, *, owner: str, session: str, now_ms: int) -> ProgramEntry:
        """See ``ProcessTable``. All callers of one program that come while it is being opened share one opening; it
        goes on when a caller is cancelled."""
        known = self._mirror.active(program)
        if known is not None:
            return known
        opening = self._opening.get(program)
        if opening is None:
            fresh = ProgramEntry(id=program, owner=owner, session=session, created_ms=now_ms, last_arrival_ms=now_ms)
            opening = asyncio.create_task(self._open(fresh), name=f"open {program}")
            self._opening[program] = opening
            opening.add_done_callback(lambda _: self._opening.pop(program))
        return await asyncio.shield(opening)

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

    async def end(self, program: str) -> bool:
        """See ``ProcessTable``."""
        self._require_contact()
        for _ in range(_ATTEMPTS):
            entry = self._mirror.active(program)
            if entry is None:
                await self._read(program)
                entry = self._mirror.active(program)
                if entry is None:
                    return False
            if await self._swap(tombstone(entry)):
                return True
        raise TableUnavailable(f"program {program} changed {_ATTEMPTS} times while it was to be ended")

    async def close(self) -> None:
        """Stops openings under way."""
        for opening in self._opening.values():
            opening.cancel()
        if self._opening:
            await asyncio.wait(set(self._opening.values()))

    async def _open(self, fresh: ProgramEntry) -> ProgramEntry:
        if self._store.contact.worth_trying:
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
        """One try to make this the store's entry; afterwards the mirror knows what the store says. Raises
        TableUnavailable."""
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
        except StoreAway:
            await self._read(program)
            return False
        if outcome.done:
            self._mirror.settle(change, entry, revision)
            return True
        if outcome.current is None:
            self._mirror.learn_absent(program, revision)
        else:
            data, written = outcome.current.data, outcome.current.revision
            self._mirror.learn(program, decode_program(program, data), written)
        return False

    async def _read(self, program: str) -> None:
        try:
            revision, value = await self._store.read(self._layout.program_key(program))
        except StoreAway as error:
            raise TableUnavailable(str(error)) from error
        if value is None:
            self._mirror.learn_absent(program, revision)
        else:
            self._mirror.learn(program, decode_program(program, value.data), value.revision)

    def _writable(self, program: str) -> bool:
        stored = self._mirror.stored(program)
        return stored.revision == 0 or stored.entry is not None

    def _require_contact(self) -> None:
        if not self._store.contact.worth_trying:
            raise TableUnavailable(self._store.contact.detail)
