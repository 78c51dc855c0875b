"""Ends the work for one request from outside: its client left, or the replica stops."""

import asyncio
from types import TracebackType
from typing import Self


class Interruptible:
    """A scope whose body another task can end: ``interrupt(error)`` makes the body raise that error.

    Built like ``asyncio.timeout``: the body's task is cancelled, and the cancellation becomes the error at the end of
    the scope. A cancellation from elsewhere passes unchanged.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._error: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """Ends the body with ``error``; the first interruption counts, and none after the scope was left."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._error is None or task is None:
            return
        if task.uncancel() <= 0 and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._error from error


class Deadline(Interruptible):
    """A scope that ends with TimeoutError at a time that may be moved.

    Moving it only notes the time, since it is moved for every token: the timer looks when it fires.
    """

    def __init__(self, at: float) -> None:
        """``at``: on the loop's clock."""
        super().__init__()
        self.at = at
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def move(self, at: float) -> None:
        """Sets another time. One that is earlier than the timer needs a new timer; a later one costs nothing."""
        self.at = at
        if self._timer is not None and at < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        if self._loop.time() < self.at:
            self._timer = self._loop.call_at(self.at, self._fire)
        else:
            self.interrupt(TimeoutError())

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._timer = self._loop.call_at(self.at, self._fire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super().__aexit__(kind, error, trace)
