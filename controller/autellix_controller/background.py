"""Small tools for work that runs beside the requests."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from autellix_controller.logs import fields

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Backoff:
    """Growing pauses between attempts: doubling from ``least`` to ``most`` seconds, each spread by half either way."""

    def __init__(self, least: float, most: float, rng: random.Random | None = None) -> None:
        self._least, self._most, self._rng = least, most, rng or random.Random()
        self._next = least

    def reset(self) -> None:
        """The last attempt was good: the next pause is the shortest again."""
        self._next = self._least

    def pause(self) -> float:
        """Seconds to wait before the next attempt."""
        pause, self._next = self._next, min(self._next * 2, self._most)
        return pause * self._rng.uniform(0.5, 1.5)


async def forever(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Runs ``work`` again whenever it ends or fails. A failure that ``work`` did not handle itself is a defect: it is
    logged with its traceback, and must not take the replica's other duties down."""
    backoff = Backoff(0.5, 30.0)
    while True:
        try:
            await work()
        except Exception:
            log.exception("background work failed, restarting", extra=fields(work=name))
        await asyncio.sleep(backoff.pause())


async def cancel(*tasks: "asyncio.Task[None]") -> None:
    """Cancels tasks and waits until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class SingleFlight(Generic[K, T]):
    """Joins concurrent requests for the same thing: the first starts the work, all get its result.

    A caller that is cancelled leaves the work running for the others.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[T]]) -> T:
        """The result of ``work``, started by this call or by another one with the same key."""
        task = self._running.get(key)
        if task is None:

            async def runner() -> T:
                return await work()

            task = asyncio.create_task(runner(), name=f"single-flight {key}")
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    def _finished(self, key: K, task: "asyncio.Task[T]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # seen here even if every caller has gone
