"""A queue of keys: each at most once, each with one worker at a time, each at its time.

The same thing as the work queue of the Go controllers: events only say *that* something about a key changed. A key
that is added while it is being worked on is due again afterwards. kopf's own per-object queues would serialise events
of one object, while a cluster's events come from dozens of objects.
"""

import asyncio
import math
from collections.abc import Callable

from autellix_operator.api.names import Key


class WorkQueue:
    """Keys with the time at which they are due. ``now`` gives seconds on the clock of the event loop."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due: dict[Key, float] = {}
        self._active: dict[Key, float] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, after: float = 0.0) -> None:
        """Makes a key due in ``after`` seconds, or earlier if it was to be already."""
        self._due[key] = min(self._due.get(key, math.inf), self._now() + after)
        self._changed.set()

    async def get(self) -> Key:
        """Waits for a key that is due and that nobody works on. ``done`` must follow."""
        while True:
            free = [(due, key) for key, due in self._due.items() if key not in self._active]
            due, key = min(free, default=(math.inf, None))
            now = self._now()
            if key is not None and due <= now:
                del self._due[key]
                self._active[key] = now
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(None if key is None else due - now):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """Ends the work on a key."""
        del self._active[key]
        self._changed.set()

    def forget(self, key: Key) -> None:
        """Drops a key that is not to be worked on any more."""
        self._due.pop(key, None)

    @property
    def depth(self) -> int:
        """Keys that are due and wait for a worker."""
        now = self._now()
        return sum(due <= now for due in self._due.values())

    @property
    def longest_active(self) -> float:
        """Seconds for which the slowest worker has been busy with one key."""
        now = self._now()
        return max((now - since for since in self._active.values()), default=0.0)
