"""Refreshes the figures of each cluster from time to time, however much happens in between."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from autellix_operator.api.names import Key
from autellix_operator.kube.applier import ApiError
from autellix_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

#: After a cluster is first seen: its controllers may be on their way.
_FIRST_SECONDS: Final = 5.0


class FiguresLoop:
    """Calls ``refresh`` for each known cluster, ``period`` seconds after the last time. Several may run ``run``."""

    def __init__(
        self,
        refresh: Callable[[Key], Awaitable[bool]],
        period: float,
        random: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._refresh = refresh
        self._period = period
        self._random = random
        self._queue = WorkQueue(clock)
        self._known: set[Key] = set()
        self._errors: dict[Key, str] = {}

    def add(self, key: Key) -> None:
        """Makes a cluster known."""
        if key not in self._known:
            self._known.add(key)
            self._queue.add(key, _FIRST_SECONDS * self._random())

    async def run(self) -> NoReturn:
        """Works until cancelled."""
        while True:
            key = await self._queue.get()
            try:
                await self._work(key)
            finally:
                self._queue.done(key)

    async def _work(self, key: Key) -> None:
        try:
            exists = await self._refresh(key)
            self._errors.pop(key, None)
        except ApiError as error:
            self._tell(key, str(error))
            exists = True
        except Exception:
            # A defect in one cluster's figures must not stop those of the others.
            log.exception("%s: unexpected error in figures", key)
            exists = True
        if exists:
            self._queue.add(key, self._period * (0.75 + self._random() / 2))
        else:
            self._known.discard(key)

    def _tell(self, key: Key, error: str) -> None:
        """Once: an error may last until somebody does something, as to update an older CRD."""
        if self._errors.get(key) != error:
            self._errors[key] = error
            log.warning("%s: figures: %s", key, error)
