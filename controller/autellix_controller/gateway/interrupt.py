"""Ends the work for one request from outside: its client left, or the replica stops."""

import asyncio
from types import TracebackType
from typing import Self


class Interruptible:
    """A scope whose body another task can end: ``interrupt(error)`` makes the body raise that error.

    Built like ``asyncio.timeout``: the body's task is cancelled, and the cancellation becomes the error at the end of
    the scope. A cancellation from elsewhere passes unchanged. It never waits, so it is entered by a plain ``with``.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._error: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """Ends the body with ``error``; the first interruption counts, and none after the scope was left."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._error is None or task is None:
            return
        if task.uncancel() <= 0 and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._error from error
