"""Brings the entries of the embedded table to its file, many in a transaction, off the path of requests."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from autellix_controller.table.database import Database
from autellix_controller.table.rounds import Rounds
from autellix_controller.table.timings import Timings

_log = logging.getLogger(__name__)

#: Programs in one transaction: bounds how long it keeps others, and those who wait for it, from the file.
_BATCH: Final = 2000


class Saver:
    """One round after another: takes the programs that changed and writes what they are by then.

    The file is touched in one thread of its own. A round that fails is repeated with growing pauses, with whatever
    has changed meanwhile: entries are absolute, so nothing is lost as long as the process lives.
    """

    def __init__(
        self,
        database: Database,
        encoded: Callable[[str], bytes | None],
        timings: Timings,
        *,
        rng: random.Random,
    ) -> None:
        """``encoded`` tells a program's entry as it is now, None if it has none."""
        self._database, self._encoded = database, encoded
        self._rounds = Rounds(timings, what="the process table", rng=rng)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-table")
        self._dirty: dict[str, None] = {}
        self._writing: dict[str, None] = {}
        self.detail = ""
        """Why the last round failed; empty when all is well."""

    @property
    def pending(self) -> int:
        """Programs with something to write."""
        return len(self._dirty.keys() | self._writing.keys())

    @property
    def oldest_update_seconds(self) -> float:
        """See ``TableHealth``."""
        return self._rounds.oldest_seconds

    def note(self, program: str) -> None:
        """The program changed."""
        self._dirty[program] = None
        self._rounds.wake()

    async def saved(self) -> None:
        """Returns once all that was noted so far is in the file. Raises TableUnavailable if it cannot be written."""
        await self._rounds.written()

    async def run(self) -> None:
        """Writes for ever; cancel it to stop."""
        await self._rounds.run(self._round, ended="the process table is closed")

    async def _round(self) -> str | None:
        self._writing, self._dirty = self._dirty, {}
        failure = await self._write(list(self._writing))
        self.detail = failure or ""
        if failure is not None:
            self._dirty.update(self._writing)
        self._writing = {}
        return failure

    async def _write(self, programs: Sequence[str]) -> str | None:
        """Why not all of them could be written; None if they were."""
        loop = asyncio.get_running_loop()
        try:
            for start in range(0, len(programs), _BATCH):
                batch = [(program, self._encoded(program)) for program in programs[start : start + _BATCH]]
                await loop.run_in_executor(self._thread, self._database.write, batch)
        except sqlite3.Error as error:
            if not self.detail:
                _log.warning("the process table cannot be written: %s", error)
            return f"{type(error).__name__}: {error}"
        return None

    async def close(self) -> None:
        """Ends the thread and closes the file, once ``run`` has ended."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown()
