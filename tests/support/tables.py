"""Process tables for tests: every implementation in one registry, so that no suite can leave one out."""

import asyncio
import contextlib
import dataclasses
import functools
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from autellix_controller.table import EtcdAccess, Timings, open_table, read_programs
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import ProcessTable
from autellix_wire.records import CallRecord, ProgramTotals
from support.etcd import Etcd

PREFIX = "/autellix/tests/one"
#: Nothing takes as long as these limits but on a machine that is very busy: so an etcd that answers is never away.
TIMINGS = Timings(
    call=10.0, linger=0.005, retry=0.1, progress=3.0, backoff_min=0.02, backoff_max=0.2, replica_ttl=10.0, close=10.0
)
#: For tests that wait for limits to pass, since something falls silent.
BRIEF_TIMINGS = dataclasses.replace(TIMINGS, call=1.0, progress=0.5, replica_ttl=2.0, close=3.0)
_PATIENCE_SECONDS = 60.0
#: Long enough that nothing expires in a test unless it says so.
LONG_SECONDS = 600.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Returns once the condition holds; fails with ``what`` if it does not come to hold."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"did not happen: {what}"
        await asyncio.sleep(0.005)


def record(
    entry: ProgramEntry,
    *,
    incarnation: str = "engine-0.a",
    calls: int = 1,
    each_ms: float = 100.0,
    wait_ms: float = 10.0,
) -> CallRecord:
    """What an engine reports after so many calls of the entry's present life, one after another."""
    return CallRecord(
        seq=calls,
        engine=incarnation.partition(".")[0],
        incarnation=incarnation,
        program=entry.engine_program,
        call=f"{incarnation}-{calls}",
        outcome="finished",
        service_ms=each_ms,
        wait_ms=wait_ms,
        path_ms=calls * each_ms,
        program_wait_ms=calls * wait_ms,
        totals=ProgramTotals(service_ms=calls * each_ms, calls=calls, prompt_tokens=calls * 7, generated_tokens=calls),
    )


class World(Protocol):
    """A store and replicas on it."""

    expired: list[ProgramEntry]
    """Programs of which a replica said that they expired."""

    async def replica(self, name: str) -> ProcessTable:
        """A started replica that has loaded the table."""

    def now_ms(self) -> int:
        """The time that replicas are told."""

    async def idle(self, seconds: float) -> None:
        """Time passes and nothing happens."""

    async def agree(self) -> None:
        """Everything is written, and all replicas have seen it."""

    async def end(self) -> None:
        """Closes the replicas."""


class MemoryWorld:
    """A process alone: whoever asks for a replica gets the one table there is."""

    def __init__(self, session_timeout_seconds: float) -> None:
        self._now_ms = 1_000_000
        self.expired: list[ProgramEntry] = []
        self._table = open_table(
            "memory:",
            PREFIX,
            "alone",
            session_timeout_seconds,
            clock_ms=self.now_ms,
            expired=self.expired.append,
        )

    async def replica(self, name: str) -> ProcessTable:
        """See World."""
        await self._table.start()
        return self._table

    def now_ms(self) -> int:
        """See World. A made-up clock that stands still but for ``idle``."""
        return self._now_ms

    async def idle(self, seconds: float) -> None:
        """See World."""
        self._now_ms += int(seconds * 1000)

    async def agree(self) -> None:
        """See World."""

    async def end(self) -> None:
        """See World."""
        await self._table.close()


class SqliteWorld(MemoryWorld):
    """A process alone, with a file of its own. Whenever all is written, file and memory must say the same."""

    def __init__(self, session_timeout_seconds: float) -> None:
        super().__init__(session_timeout_seconds)
        self._folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite://{self._folder.name}/table.db"
        self._table = open_table(
            self.url,
            PREFIX,
            "alone",
            session_timeout_seconds,
            timings=TIMINGS,
            clock_ms=self.now_ms,
            expired=self.expired.append,
        )
        self._started = False

    async def replica(self, name: str) -> ProcessTable:
        """See World."""
        if not self._started:
            self._started = True
            await self._table.start()
        return self._table

    async def agree(self) -> None:
        """See World."""
        await self._table.flush()
        written = await read_programs(self.url, PREFIX)
        assert {entry.id: entry for entry in written} == {entry.id: self._table.get(entry.id) for entry in written}
        assert sum(entry.state == "active" for entry in written) == self._table.count()

    async def end(self) -> None:
        """See World."""
        await super().end()
        self._folder.cleanup()


class EtcdWorld:
    """Replicas on a real etcd, under a prefix of their own."""

    def __init__(
        self,
        etcd: Etcd,
        session_timeout_seconds: float,
        timings: Timings = TIMINGS,
        access: EtcdAccess | None = None,
    ) -> None:
        self.etcd = etcd
        self.access = access or EtcdAccess()
        self.prefix = f"/autellix/tests/{secrets.token_hex(6)}"
        self.replicas: list[ProcessTable] = []
        self.expired: list[ProgramEntry] = []
        self._session_timeout_seconds = session_timeout_seconds
        self._timings = timings

    async def replica(self, name: str, url: str | None = None) -> ProcessTable:
        """See World. ``url``: another way to the same store."""
        table = self.unstarted(name, url)
        await table.start()
        await until(lambda: table.health().loaded and table.health().connected, f"replica {name} loads the table")
        return table

    def unstarted(self, name: str, url: str | None = None) -> ProcessTable:
        """A replica that is not started."""
        table = open_table(
            url or self.etcd.url,
            self.prefix,
            name,
            self._session_timeout_seconds,
            timings=self._timings,
            access=self.access,
            expired=self.expired.append,
        )
        self.replicas.append(table)
        return table

    def now_ms(self) -> int:
        """See World. The real clock: leases expire by it."""
        return time.time_ns() // 1_000_000

    async def idle(self, seconds: float) -> None:
        """See World."""
        await asyncio.sleep(seconds)

    async def agree(self) -> None:
        """See World."""
        for table in self.replicas:
            await table.flush()
        revision = await asyncio.to_thread(self.etcd.newest_revision, self.prefix + "/")
        for table in self.replicas:
            await until(functools.partial(_reached, table, revision), f"a replica sees revision {revision}")

    async def end(self) -> None:
        """See World."""
        for table in self.replicas:
            await table.close()


@contextlib.asynccontextmanager
async def world_on(
    etcd: Etcd, timeout_seconds: float = LONG_SECONDS, timings: Timings = TIMINGS
) -> AsyncIterator[EtcdWorld]:
    """A world that ends with the block."""
    world = EtcdWorld(etcd, timeout_seconds, timings)
    try:
        yield world
    finally:
        await world.end()


def held(table: ProcessTable, program: str) -> ProgramEntry:
    """The program's entry, which the replica has to know."""
    entry = table.get(program)
    assert entry is not None, f"program {program} is not known"
    return entry


def _reached(table: ProcessTable, revision: int) -> bool:
    return table.health().revision >= revision


WORLDS: dict[str, Callable[[float, Etcd | None], World]] = {
    "memory": lambda timeout, etcd: MemoryWorld(timeout),
    "sqlite": lambda timeout, etcd: SqliteWorld(timeout),
    "etcd": lambda timeout, etcd: EtcdWorld(_required(etcd), timeout),
}
"""Every implementation: makes a world with that session timeout in seconds."""


def _required(etcd: Etcd | None) -> Etcd:
    assert etcd is not None, "this table needs an etcd: give one"
    return etcd
