"""The process table of a controller that runs alone and may be restarted: one process, one SQLite file."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autellix_controller.background import cancel, forever
from autellix_controller.table.database import Database
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import TableHealth, TableUnavailable
from autellix_controller.table.layout import decode_program, encode_program
from autellix_controller.table.memory import MemoryTable
from autellix_controller.table.saver import Saver
from autellix_controller.table.timings import Timings
from autellix_wire.records import CallRecord

_log = logging.getLogger(__name__)


class SqliteTable:
    """``ProcessTable`` in a file.

    The table in memory answers and decides, since nobody else can; a saver brings every change to the file. What
    ``open``, ``pin`` and ``end`` answer is in the file by then, unless it cannot be written: then memory goes on
    alone, and ``health`` says so. Made inside a running event loop; the file is opened and read at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        replica: str,
        session_timeout_seconds: float,
        timings: Timings,
        clock_ms: Callable[[], int],
        rng: random.Random,
        expired: Callable[[ProgramEntry], None],
    ) -> None:
        """Raises DatabaseUnusable, or sqlite3.Error if the file cannot be read."""
        self._timings = timings
        self._memory = MemoryTable(
            replica=replica,
            session_timeout_seconds=session_timeout_seconds,
            clock_ms=clock_ms,
            changed=self._changed,
            expired=expired,
        )
        self._unreadable: set[str] = set()
        database = Database(path)
        try:
            entries = []
            for program, data in database.load():
                if (entry := decode_program(program, data)) is None:
                    self._unreadable.add(program)
                else:
                    entries.append(entry)
            self._memory.restore(entries)
        except BaseException:
            database.close()
            raise
        self._saver = Saver(database, self._encoded, timings, rng=rng)
        self._tasks: list[asyncio.Task[None]] = []

    def _changed(self, program: str) -> None:
        # What is damaged or of a newer version is not ours to overwrite: such a program is served from memory alone.
        if program not in self._unreadable:
            self._saver.note(program)

    def _encoded(self, program: str) -> bytes | None:
        entry = self._memory.get(program)
        return None if entry is None else encode_program(entry)

    async def start(self) -> None:
        """See ``ProcessTable``."""
        name = "write the process table"
        self._tasks.append(asyncio.create_task(forever(name, self._saver.run), name=name))
        await asyncio.sleep(0)  # from here on it takes what is to be written

    async def close(self) -> None:
        """See ``ProcessTable``. Says in the log what could not be written in time."""
        try:
            async with asyncio.timeout(self._timings.close):
                await self.flush()
        except (TimeoutError, TableUnavailable) as error:
            _log.warning("closing the process table with %d programs not written: %s", self._saver.pending, error)
        finally:
            await cancel(*self._tasks)
            await self._saver.close()

    def get(self, program: str) -> ProgramEntry | None:
        """See ``ProcessTable``."""
        return self._memory.get(program)

    def page(self, owner: str, after: str, limit: int) -> Sequence[ProgramEntry]:
        """See ``ProcessTable``."""
        return self._memory.page(owner, after, limit)

    def count(self) -> int:
        """See ``ProcessTable``."""
        return self._memory.count()

    def pins(self) -> Mapping[str, int]:
        """See ``ProcessTable``."""
        return self._memory.pins()

    async def open(self, program: str, *, owner: str, session: str, now_ms: int) -> ProgramEntry:
        """See ``ProcessTable``."""
        known = self._memory.get(program)
        entry = await self._memory.open(program, owner=owner, session=session, now_ms=now_ms)
        if entry is not known:
            await self._saved()
        return entry

    async def pin(self, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        """See ``ProcessTable``; never unavailable."""
        entry = await self._memory.pin(program, engine, expected=expected)
        if entry.engine == engine:
            await self._saved()
        return entry

    async def end(self, program: str, *, cancel: bool = False) -> bool:
        """See ``ProcessTable``; never unavailable."""
        ended = await self._memory.end(program, cancel=cancel)
        if ended:
            await self._saved()
        return ended

    def arrived(self, program: str, now_ms: int) -> None:
        """See ``ProcessTable``."""
        self._memory.arrived(program, now_ms)

    def departed(self, program: str, now_ms: int) -> None:
        """See ``ProcessTable``."""
        self._memory.departed(program, now_ms)

    def apply(self, record: CallRecord, now_ms: int) -> None:
        """See ``ProcessTable``."""
        self._memory.apply(record, now_ms)

    async def flush(self) -> None:
        """See ``ProcessTable``."""
        self._memory.expire()
        await self._saver.saved()

    def live_replicas(self) -> frozenset[str]:
        """This one only."""
        return self._memory.live_replicas()

    def health(self) -> TableHealth:
        """See ``ProcessTable``."""
        detail = self._saver.detail
        return TableHealth(
            loaded=True,
            connected=not detail,
            detail=f"the file cannot be written: {detail}" if detail else "",
            pending_updates=self._saver.pending,
            oldest_update_seconds=self._saver.oldest_update_seconds,
            unreadable=len(self._unreadable),
        )

    async def _saved(self) -> None:
        # What cannot be written now is written later, and nobody waits for it; the saver has logged it.
        if not self._saver.detail:
            with contextlib.suppress(TableUnavailable):
                await self._saver.saved()
