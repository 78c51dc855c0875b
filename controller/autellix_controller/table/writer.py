"""Brings unwritten accounting to the store, many programs in a transaction, off the path of requests."""

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Final

from autellix_controller.background import Backoff
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, encode_program
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Change, Mirror
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
        self._linger_seconds = timings.linger
        self._backoff = Backoff(timings.linger, timings.retry, rng)
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._stopped = True
        self._slots = asyncio.Semaphore(_PARALLEL)

    def wake(self) -> None:
        """There is something to write."""
        self._work.set()

    async def flush(self) -> None:
        """Returns when a round that began after this call has written everything. Raises TableUnavailable if that
        round could not, or if the writer does not run."""
        if self._stopped:
            raise TableUnavailable("the process table is not started, or closed")
        self._mirror.mark_all_dirty()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._work.set()
        self._hurry.set()
        await done

    async def run(self) -> None:
        """Writes for ever; cancel it to stop."""
        pause = self._linger_seconds
        waiting: list[asyncio.Future[None]] = []
        self._stopped = False
        try:
            while True:
                await self._work.wait()
                await self._linger(pause)
                self._work.clear()
                self._hurry.clear()
                waiting, self._waiting = self._waiting, []
                failure = await self._round(self._mirror.take_dirty())
                _resolve(waiting, failure)
                if failure is None:
                    self._backoff.reset()
                    pause = self._linger_seconds
                else:
                    pause = self._backoff.pause()
                    self._work.set()
        finally:
            self._stopped = True
            _resolve([*waiting, *self._waiting], StoreAway("the writer has stopped"))

    async def _linger(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)

    async def _round(self, programs: Sequence[str]) -> StoreAway | None:
        failures: list[StoreAway] = []
        await asyncio.gather(*(self._write_in_turn(chunk, failures) for chunk in self._chunks(programs)))
        return failures[0] if failures else None

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


def _resolve(waiting: Sequence[asyncio.Future[None]], failure: StoreAway | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(TableUnavailable(f"accounting could not be written: {failure}"))
