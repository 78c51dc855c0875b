"""Brings the entries of the embedded table to its file, many in a transaction, off the path of requests."""

import asyncio
import contextlib
import logging
import random
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from autellix_controller.background import Backoff
from autellix_controller.table.database import Database
from autellix_controller.table.interface import TableUnavailable
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
        self._linger_seconds = timings.linger
        self._backoff = Backoff(timings.linger, timings.retry, rng)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-table")
        self._dirty: dict[str, None] = {}
        self._writing: dict[str, None] = {}
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._stopped = True
        self.detail = ""
        """Why the last round failed; empty when all is well."""

    @property
    def pending(self) -> int:
        """Programs with something to write."""
        return len(self._dirty.keys() | self._writing.keys())

    def note(self, program: str) -> None:
        """The program changed."""
        self._dirty[program] = None
        self._work.set()

    async def saved(self) -> None:
        """Returns once all that was noted so far is in the file. Raises TableUnavailable if it cannot be written."""
        if self._stopped:
            raise TableUnavailable("the process table is not started, or closed")
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
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause)
                self._work.clear()
                self._hurry.clear()
                waiting, self._waiting = self._waiting, []
                self._writing, self._dirty = self._dirty, {}
                written = await self._round(list(self._writing))
                if not written:
                    self._dirty.update(self._writing)
                    self._work.set()
                self._writing = {}
                pause = self._linger_seconds if written else self._backoff.pause()
                _resolve(waiting, self.detail)
        finally:
            self._stopped = True
            _resolve([*waiting, *self._waiting], "the process table is closed")

    async def _round(self, programs: Sequence[str]) -> bool:
        """Whether all of them could be written; if not, ``detail`` says why."""
        loop = asyncio.get_running_loop()
        try:
            for start in range(0, len(programs), _BATCH):
                batch = [(program, self._encoded(program)) for program in programs[start : start + _BATCH]]
                await loop.run_in_executor(self._thread, self._database.write, batch)
        except sqlite3.Error as error:
            if not self.detail:
                _log.warning("the process table cannot be written: %s", error)
            self.detail = f"{type(error).__name__}: {error}"
            return False
        self.detail = ""
        self._backoff.reset()
        return True

    async def close(self) -> None:
        """Ends the thread and closes the file, once ``run`` has ended."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown()


def _resolve(waiting: list[asyncio.Future[None]], failure: str) -> None:
    for done in waiting:
        if done.done():
            continue
        if failure:
            done.set_exception(TableUnavailable(f"the process table could not be written: {failure}"))
        else:
            done.set_result(None)
