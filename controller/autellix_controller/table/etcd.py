"""The process table in etcd: many controller replicas, one truth."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from autellix_controller.background import cancel, forever
from autellix_controller.table.activity import RunningCalls
from autellix_controller.table.channel import Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.duty import on_duty
from autellix_controller.table.entry import ProgramEntry, belongs, split_engine_program, with_record
from autellix_controller.table.interface import TableHealth, TableUnavailable
from autellix_controller.table.layout import Layout
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Mirror
from autellix_controller.table.registry import Registry
from autellix_controller.table.store import EtcdStore, StoreAway
from autellix_controller.table.sync import MirrorSync
from autellix_controller.table.timings import Timings
from autellix_controller.table.transitions import Transitions
from autellix_controller.table.watcher import Watcher
from autellix_controller.table.writer import Writer
from autellix_wire.records import CallRecord

_log = logging.getLogger(__name__)


def wall_clock_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


class EtcdTable:
    """``ProcessTable`` over etcd.

    A mirror answers all reads. A watcher keeps it up to date, transitions change pins and states by compare-and-swap,
    a writer brings accounting to the store in batches, a registry says that this replica is alive.
    Made inside a running event loop.
    """

    def __init__(
        self,
        members: Members,
        *,
        prefix: str,
        replica: str,
        session_timeout_seconds: float,
        timings: Timings,
        clock_ms: Callable[[], int],
        rng: random.Random,
        expired: Callable[[ProgramEntry], None],
    ) -> None:
        """``expired`` is told of each program that expired, by one of the replicas."""
        self._replica: Final = replica
        self._timings = timings
        self._clock_ms = clock_ms
        self._timeout_ms = int(session_timeout_seconds * 1000)
        self._running = RunningCalls()
        self._members = members
        contact = Contact(timings, clock=time.monotonic)
        self._store = EtcdStore(self._members, contact, timings)
        layout = Layout(prefix)
        self._tell_expired = expired
        self._mirror = Mirror(self._in_use, self._expired)
        self._leases = ExpiryLeases(self._store, session_timeout_seconds=session_timeout_seconds, clock_ms=clock_ms)
        self._writer = Writer(self._mirror, self._store, self._leases, layout, timings, rng=rng)
        self._sync = MirrorSync(self._mirror, layout, self._writer.wake)
        self._watcher = Watcher(self._store, layout.root, layout.history, self._sync, timings, rng=rng)
        self._transitions = Transitions(self._mirror, self._store, self._leases, layout, self._writer.wake)
        self._registry = Registry(self._store, layout, replica, timings)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """See ``ProcessTable``."""
        for name, work in (
            ("watch the process table", self._watcher.run),
            ("write the process table", self._writer.run),
            ("register the replica", self._registry.run),
            ("keep running programs", self._keep_running),
        ):
            self._tasks.append(asyncio.create_task(forever(name, work), name=name))

    async def close(self) -> None:
        """See ``ProcessTable``. Says in the log what could not be written in time."""
        try:
            async with asyncio.timeout(self._timings.close):
                await self.flush()
        except (TimeoutError, TableUnavailable) as error:
            _log.warning("closing the process table with %d programs not written: %s", self._mirror.pending, error)
        finally:
            await cancel(*self._tasks)
            # With the store away, the registration expires by itself.
            with contextlib.suppress(StoreAway):
                await self._registry.leave()
            await self._members.close()

    def get(self, program: str) -> ProgramEntry | None:
        """See ``ProcessTable``."""
        return self._mirror.get(program)

    def page(self, owner: str, after: str, limit: int) -> Sequence[ProgramEntry]:
        """See ``ProcessTable``."""
        return self._mirror.page(owner, after, limit)

    def count(self) -> int:
        """See ``ProcessTable``."""
        return self._mirror.count()

    def pins(self) -> Mapping[str, int]:
        """See ``ProcessTable``."""
        return self._mirror.pins()

    async def open(self, program: str, *, owner: str, session: str, now_ms: int) -> ProgramEntry:
        """See ``ProcessTable``."""
        return await self._transitions.open(program, owner=owner, session=session, now_ms=now_ms)

    async def pin(self, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        """See ``ProcessTable``."""
        return await self._transitions.pin(program, engine, expected=expected)

    async def end(self, program: str, *, cancel: bool = False) -> bool:
        """See ``ProcessTable``."""
        return await self._transitions.end(program, cancel=cancel)

    def arrived(self, program: str, now_ms: int) -> None:
        """See ``ProcessTable``. Costs a write of its own only once in each bucket of expiry leases."""
        self._running.arrived(program)
        entry = self._mirror.active(program)
        if entry is None:
            return
        stored = self._mirror.stored(program).entry
        due = stored is None or self._leases.bucket(now_ms) > self._leases.bucket(stored.last_activity_ms)
        if now_ms > entry.last_arrival_ms:
            entry = msgspec.structs.replace(entry, last_arrival_ms=now_ms)
        self._mirror.note(entry, dirty=due)
        if due:
            self._writer.wake()

    def departed(self, program: str, now_ms: int) -> None:
        """See ``ProcessTable``."""
        self._running.departed(program)

    def apply(self, record: CallRecord, now_ms: int) -> None:
        """See ``ProcessTable``."""
        program, life = split_engine_program(record.program)
        entry = self._mirror.active(program)
        if entry is not None and belongs(entry, life):
            self._mirror.note(with_record(entry, record, now_ms))
            self._writer.wake()

    async def flush(self) -> None:
        """See ``ProcessTable``."""
        await self._writer.flush()

    def live_replicas(self) -> frozenset[str]:
        """See ``ProcessTable``."""
        return self._sync.replicas | {self._replica}

    def health(self) -> TableHealth:
        """See ``ProcessTable``."""
        contact = self._store.contact
        return TableHealth(
            loaded=self._sync.loaded,
            connected=self._watcher.connected and not contact.away,
            watching=self._watcher.connected,
            detail="; ".join(filter(None, (self._watcher.detail, contact.detail))),
            cause=self._watcher.detail or contact.cause,
            revision=self._watcher.revision,
            seconds_since_reply=self._watcher.seconds_since_reply,
            pending_updates=self._mirror.pending,
            oldest_update_seconds=self._writer.oldest_update_seconds,
            unreadable=self._mirror.unreadable,
        )

    async def _keep_running(self) -> None:
        """Attaches programs whose calls run for long to a new expiry lease, once in each bucket."""
        while True:
            await asyncio.sleep(self._leases.bucket_seconds)
            for program in self._running.programs():
                entry = self._mirror.active(program)
                if entry is not None:
                    self._mirror.note(entry)
            self._writer.wake()

    def _expired(self, entry: ProgramEntry) -> None:
        # All replicas see it: one of them tells.
        if on_duty(entry.id, self.live_replicas()) == self._replica:
            self._tell_expired(entry)

    def _in_use(self, entry: ProgramEntry) -> bool:
        return entry.id in self._running or self._clock_ms() - entry.last_activity_ms < self._timeout_ms
