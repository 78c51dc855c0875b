"""In which order programs leave the pool."""

import bisect
from collections.abc import Set
from typing import TypeAlias

from autellix_engine.swap.tier.programs import Program, Standing

_IdleKey: TypeAlias = tuple[float, int]
_ActiveKey: TypeAlias = tuple[bool, int, int]


class Shelf:
    """The programs that keep blocks, sorted so that the next one to leave is found without looking at the others.

    Ended programs leave first, oldest first. Then idle ones: sorted by when they are due, the one farthest from now is
    at one of the two ends. Last come active ones: those that run, then those that wait, the lowest level first.
    """

    def __init__(self) -> None:
        self._ended: dict[Program, None] = {}
        self._idle: list[tuple[_IdleKey, Program]] = []
        self._active: list[tuple[_ActiveKey, Program]] = []
        self._place: dict[Program, tuple[Standing, _IdleKey | _ActiveKey]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._place)

    def put(self, program: Program) -> None:
        """Puts the program where it belongs now; call it whenever something about it has changed."""
        self.take(program)
        if not program.blocks:
            return
        self._last += 1
        standing = program.standing
        if standing is Standing.ENDED:
            self._ended[program] = None
            self._place[program] = standing, (0.0, 0)
        elif standing is Standing.IDLE:
            idle_key = (program.due, self._last)
            bisect.insort(self._idle, (idle_key, program))
            self._place[program] = standing, idle_key
        else:
            active_key = (program.waits, -program.level, self._last)
            bisect.insort(self._active, (active_key, program))
            self._place[program] = standing, active_key

    def take(self, program: Program) -> None:
        """Takes the program out, if it is here."""
        place = self._place.pop(program, None)
        if place is None:
            return
        standing, key = place
        if standing is Standing.ENDED:
            del self._ended[program]
        elif standing is Standing.IDLE:
            del self._idle[bisect.bisect_left(self._idle, (key,))]
        else:
            del self._active[bisect.bisect_left(self._active, (key,))]

    def next_to_leave(self, now: float, passed_over: Set[Program]) -> Program | None:
        """The program of the least worth that is not passed over."""
        for program in self._ended:
            if program not in passed_over:
                return program
        return self._farthest(now, passed_over) or next(
            (program for _, program in self._active if program not in passed_over), None
        )

    def due(self, since: float, until: float) -> list[Program]:
        """Idle programs that are expected in that time, the first due first."""
        first = bisect.bisect_left(self._idle, ((since, 0),))
        last = bisect.bisect_right(self._idle, ((until, self._last + 1),))
        return [program for _, program in self._idle[first:last]]

    def _farthest(self, now: float, passed_over: Set[Program]) -> Program | None:
        first, last = 0, len(self._idle) - 1
        while first <= last:
            early, late = self._idle[first][1], self._idle[last][1]
            if now - early.due >= late.due - now:
                candidate, first = early, first + 1
            else:
                candidate, last = late, last - 1
            if candidate not in passed_over:
                return candidate
        return None
