"""Brings unwritten accounting to the store, many programs in a transaction, off the path of requests."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Final

from autellix_controller.table.layout import Layout, encode_program
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Change, Mirror
from autellix_controller.table.rounds import Rounds
from autellix_controller.table.store import MAX_SWAPS, EtcdStore, LeaseGone, StoreAway, Swap
from autellix_controller.table.sync import learn
from autellix_controller.table.timings import Timings

_PARALLEL: Final = 4
#: Bytes of entries in one transaction, about: etcd refuses requests of more than 1.5 MiB.
_MAX_BYTES: Final = 1 << 20
#: What an entry takes, and each engine incarnation in it, on the large side: names of pods may have 63 characters.
_ENTRY_BYTES: Final = 1024
_INCARNATION_BYTES: Final = 256
_ATTEMPTS: Final = 10


class Writer:
    """One round after another: takes what is dirty, swaps it in, joins and repeats what lost.

    Changes of one program between two rounds become one write. A swap is guarded by the revision the change was
    joined with, so no reply that was lost and no repeat does harm. At most ``_PARALLEL`` transactions are under way.
    """

    def __init__(
        self,
        mirror: Mirror,
        store: EtcdStore,
        leases: ExpiryLeases,
        layout: Layout,
        timings: Timings,
        *,
        rng: random.Random,
    ) -> None:
        self._mirror = mirror
        self._store = store
        self._leases = leases
        self._layout = layout
        self._rounds = Rounds(timings, what="accounting", rng=rng)
        self._slots = asyncio.Semaphore(_PARALLEL)

    def wake(self) -> None:
        """There is something to write."""
        self._rounds.wake()

    @property
    def oldest_update_seconds(self) -> float:
        """See ``TableHealth``."""
        return self._rounds.oldest_seconds

    async def flush(self) -> None:
        """Returns when a round that began after this call has written everything. Raises TableUnavailable if that
        round could not, or if the writer does not run."""
        self._mirror.mark_all_dirty()
        await self._rounds.written()

    async def run(self) -> None:
        """Writes for ever; cancel it to stop."""
        await self._rounds.run(self._round, ended="the writer has stopped")

    async def _round(self) -> str | None:
        failures: list[StoreAway] = []
        chunks = self._chunks(self._mirror.take_dirty())
        await asyncio.gather(*(self._write_in_turn(chunk, failures) for chunk in chunks))
        return str(failures[0]) if failures else None

    def _chunks(self, programs: Sequence[str]) -> Iterator[list[str]]:
        """What goes into one transaction each: bounded in number and in bytes."""
        chunk: list[str] = []
        size = 0
        for program in programs:
            entry = self._mirror.get(program)
            weight = _ENTRY_BYTES + _INCARNATION_BYTES * (len(entry.totals) if entry is not None else 0)
            if chunk and (len(chunk) == MAX_SWAPS or size + weight > _MAX_BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append(program)
            size += weight
        if chunk:
            yield chunk

    async def _write_in_turn(self, programs: Sequence[str], failures: list[StoreAway]) -> None:
        """Writes a chunk when it is its turn; after a failure the rest of the round waits for the next one."""
        async with self._slots:
            left = list(programs)
            try:
                for _ in range(_ATTEMPTS):
                    if failures or not left:
                        break
                    left = await self._write(left)
                else:
                    raise StoreAway(f"{len(left)} entries changed {_ATTEMPTS} times while they were written")
            except StoreAway as error:
                failures.append(error)
            self._mirror.mark_dirty(left)

    async def _write(self, programs: Sequence[str]) -> list[str]:
        """One transaction; returns what has to be tried again."""
        lease = await self._leases.current()
        # No await from here to the swap: a change and the revision that it was joined with belong together.
        changes = [(program, change) for program in programs if (change := self._mirror.change(program)) is not None]
        if not changes:
            return []
        try:
            revision, outcomes = await self._store.swap([self._swap(change, lease) for _, change in changes])
        except LeaseGone:
            self._leases.forget(lease)
            return [program for program, _ in changes]
        again = []
        for (program, change), outcome in zip(changes, outcomes, strict=True):
            if outcome.done:
                self._mirror.settle(change, change.entry, revision)
            else:
                again.append(program)
                learn(self._mirror, program, revision, outcome.current)
        return again

    def _swap(self, change: Change, lease: int) -> Swap:
        program = change.entry.id
        return Swap(
            self._layout.program_key(program),
            self._mirror.stored(program).revision,
            encode_program(change.entry),
            lease,
        )
