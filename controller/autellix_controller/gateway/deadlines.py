"""Deadlines of calls, all watched by one timer: a timer for each would cost more than what it guards."""

import asyncio
import math
from types import TracebackType
from typing import Self

from autellix_controller.gateway.interrupt import Interruptible


class DeadlineTimer:
    """Fires the deadlines of one event loop; it is made inside of it.

    Its one timer is set to the deadline that was the nearest when it last fired. Deadlines mostly move away, since
    they are moved for every token, or their calls end: so the timer fires now and then without need, looks at all of
    them, and is set anew. Nothing has to be done when a call begins, goes on or ends.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def deadline(self, at: float) -> "Deadline":
        """A scope that ends with TimeoutError ``at`` that time on the loop's clock."""
        return Deadline(self, at)

    def watch(self, deadline: "Deadline") -> None:
        """From now on fires it when its time has come."""
        self._watched.add(deadline)
        self.nearer(deadline.at)

    def leave(self, deadline: "Deadline") -> None:
        """Watches it no more."""
        self._watched.discard(deadline)

    def nearer(self, at: float) -> None:
        """Sees to it that the timer fires by then."""
        if at < self._fires_at:
            if self._timer is not None:
                self._timer.cancel()
            self._fires_at = at
            self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer, self._fires_at = None, math.inf
        now = self._loop.time()
        for deadline in [deadline for deadline in self._watched if deadline.at <= now]:
            self._watched.discard(deadline)
            deadline.interrupt(TimeoutError())
        self.nearer(min((deadline.at for deadline in self._watched), default=math.inf))


class Deadline(Interruptible):
    """A scope that ends with TimeoutError at a time that may be moved."""

    def __init__(self, timer: DeadlineTimer, at: float) -> None:
        """See ``DeadlineTimer.deadline``."""
        super().__init__()
        self._timer = timer
        self.at = at
        """May be set to a later time as it is; a nearer one is for ``move``."""

    def move(self, at: float) -> None:
        """Sets another time."""
        self.at = at
        self._timer.nearer(at)

    def __enter__(self) -> Self:
        super().__enter__()
        self._timer.watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.leave(self)
        super().__exit__(kind, error, trace)
