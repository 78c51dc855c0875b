"""Writing in rounds, off the path of requests: what changed meanwhile goes into the next one."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from autellix_controller.background import Backoff
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.timings import Timings


class Rounds:
    """When a table writes, and who waits for it.

    A round begins a moment after there is something to write, at once if somebody waits. One that fails is repeated
    with growing pauses.
    """

    def __init__(
        self, timings: Timings, *, what: str, rng: random.Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``what`` is written, for messages; ``clock`` counts seconds and never goes back."""
        self._clock = clock
        self._unwritten_since: float | None = None
        self._writing_since: float | None = None
        self._linger_seconds = timings.linger
        self._backoff = Backoff(timings.linger, timings.retry, rng)
        self._what = what
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._stopped = True

    def wake(self) -> None:
        """There is something to write."""
        if self._unwritten_since is None:
            self._unwritten_since = self._clock()
        self._work.set()

    @property
    def oldest_seconds(self) -> float:
        """For how long the first of what is not written has waited; 0 if nothing does."""
        since = self._unwritten_since if self._writing_since is None else self._writing_since
        return 0.0 if since is None else self._clock() - since

    async def written(self) -> None:
        """Returns when a round that began after this call has written everything.

        Raises TableUnavailable if that round could not, or if no rounds are played.
        """
        if self._stopped:
            raise TableUnavailable("the process table is not started, or closed")
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self.wake()
        self._hurry.set()
        await done

    async def run(self, write: Callable[[], Awaitable[str | None]], *, ended: str) -> None:
        """Plays rounds for ever; cancel it to stop.

        ``write`` plays one and tells why it failed, None if it did not; ``ended`` is why those who still wait when
        it is cancelled wait in vain.
        """
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
                self._writing_since, self._unwritten_since = self._unwritten_since, None
                failure = await write()
                if failure is not None:
                    self._unwritten_since = self._writing_since
                self._writing_since = None
                self._resolve(waiting, failure)
                if failure is None:
                    self._backoff.reset()
                    pause = self._linger_seconds
                else:
                    pause = self._backoff.pause()
                    self._work.set()
        finally:
            self._stopped = True
            self._resolve([*waiting, *self._waiting], ended)

    def _resolve(self, waiting: Sequence[asyncio.Future[None]], failure: str | None) -> None:
        for done in waiting:
            if done.done():
                continue
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(TableUnavailable(f"{self._what} could not be written: {failure}"))
