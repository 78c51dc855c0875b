"""Brings unwritten accounting to the store, many programs in a transaction, off the path of requests."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, decode_program, encode_program
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Change, Mirror
from autellix_controller.table.store import MAX_SWAPS, EtcdStore, LeaseGone, StoreAway, Swap
from autellix_controller.table.timings import Timings

_PARALLEL: Final = 4
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
        jitter: Callable[[], float],
    ) -> None:
        self._mirror = mirror
        self._store = store
        self._leases = leases
        self._layout = layout
        self._timings = timings
        self._jitter = jitter
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._slots = asyncio.Semaphore(_PARALLEL)

    def wake(self) -> None:
        """There is something to write."""
        self._work.set()

    async def flush(self) -> None:
        """Returns when a round that began after this call has written everything. Raises TableUnavailable if that
        round could not."""
        self._mirror.mark_all_dirty()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._work.set()
        self._hurry.set()
        await done

    async def run(self) -> None:
        """Writes for ever; cancel it to stop."""
        pause = self._timings.linger
        try:
            while True:
                await self._work.wait()
                await self._linger(pause)
                self._work.clear()
                self._hurry.clear()
                waiting, self._waiting = self._waiting, []
                failure = await self._round(self._mirror.take_dirty())
                for done in waiting:
                    if not done.done():
                        _resolve(done, failure)
                if failure is None:
                    pause = self._timings.linger
                else:
                    pause = min(self._timings.retry, max(self._timings.linger, pause * 2)) * (0.5 + self._jitter() / 2)
                    self._work.set()
        finally:
            for done in self._waiting:
                done.cancel()

    async def _linger(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)

    async def _round(self, programs: Sequence[str]) -> Exception | None:
        chunks = [programs[start : start + MAX_SWAPS] for start in range(0, len(programs), MAX_SWAPS)]
        failures = await asyncio.gather(*(self._write_in_turn(chunk) for chunk in chunks))
        return next((failure for failure in failures if failure is not None), None)

    async def _write_in_turn(self, programs: Sequence[str]) -> Exception | None:
        async with self._slots:
            left = list(programs)
            try:
                for _ in range(_ATTEMPTS):
                    left = await self._write(left)
                    if not left:
                        return None
                raise StoreAway(f"{len(left)} entries changed {_ATTEMPTS} times while they were written")
            except StoreAway as error:
                self._mirror.mark_dirty(left)
                return error

    async def _write(self, programs: Sequence[str]) -> list[str]:
        """One transaction; returns what has to be tried again."""
        changes = [(program, change) for program in programs if (change := self._mirror.change(program)) is not None]
        if not changes:
            return []
        lease = await self._leases.current()
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
                if outcome.current is None:
                    self._mirror.learn_absent(program, revision)
                else:
                    current = outcome.current
                    self._mirror.learn(program, decode_program(program, current.data), current.revision)
        return again

    def _swap(self, change: Change, lease: int) -> Swap:
        program = change.entry.id
        return Swap(
            self._layout.program_key(program),
            self._mirror.stored(program).revision,
            encode_program(change.entry),
            lease,
        )


def _resolve(done: asyncio.Future[None], failure: Exception | None) -> None:
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(TableUnavailable(f"accounting could not be written: {failure}"))
