"""Calls that run on this replica: what keeps a program alive although nothing of it is written."""

from collections import Counter
from collections.abc import Iterable


class RunningCalls:
    """How many calls of each program arrived here and have not departed."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    def __contains__(self, program: str) -> bool:
        return program in self._running

    def programs(self) -> Iterable[str]:
        """Programs with a running call."""
        return tuple(self._running)

    def arrived(self, program: str) -> None:
        """One call more."""
        self._running[program] += 1

    def departed(self, program: str) -> None:
        """One call fewer. Raises ValueError if none is running: the caller counted wrong."""
        running = self._running[program]
        if running <= 0:
            del self._running[program]
            raise ValueError(f"program {program}: a call departed that had not arrived")
        if running == 1:
            del self._running[program]
        else:
            self._running[program] = running - 1
