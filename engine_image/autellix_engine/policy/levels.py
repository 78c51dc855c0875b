"""The levels of the queues: their bounds and quanta, given or following what programs are served."""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from autellix_engine.policy.policies import Policy
from autellix_engine.policy.settings import SchedulingSettings

#: With ``auto``: bounds as shares of the top bound, each twice the one before.
SHARES: Final = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: The top bound to begin with, in milliseconds.
FIRST_TOP_MS: Final = 64_000.0
#: The top bound stays between these multiples of a program's mean service: below, most programs end up in the last
#: level; above, in the first. In between it does not move, so that chance does not make it swing.
BAND: Final = (2.0, 4.0)
#: Finished programs between two changes, and by how much one change at most multiplies or divides the top bound.
PROGRAMS_PER_CHANGE: Final = 16
LARGEST_CHANGE: Final = 1.25
#: Finished programs that the mean goes back over, with weights that decay from there on.
MEMORY: Final = 64
#: Limits of the top bound in milliseconds: whatever is observed, levels keep a width that time can be measured in.
TOP_LIMITS_MS: Final = (64.0, 64.0 * 3_600_000)


@dataclass(frozen=True, slots=True)
class Levels:
    """K levels, best first: K - 1 ascending bounds and K quanta in milliseconds, the last of which is infinite."""

    bounds: tuple[float, ...]
    quanta: tuple[float, ...]

    @classmethod
    def of(cls, bounds: Sequence[float], quanta: Sequence[float] | None = None) -> Self:
        """Levels with these bounds; a quantum is the width of its level unless they are given."""
        widths = [upper - lower for lower, upper in itertools.pairwise((0.0, *bounds))]
        return cls(tuple(bounds), (*(quanta or widths), float("inf")))

    def level(self, service_ms: float) -> int:
        """The level i with ``bounds[i - 1] <= service < bounds[i]``."""
        return bisect_right(self.bounds, service_ms)


class LevelSource(Protocol):
    """Says which levels hold for a call that arrives now."""

    @property
    def now(self) -> Levels:
        """The levels for new calls."""

    def finished(self, service_ms: float) -> None:
        """A program (under ``mlfq``: a call) is over, and had this service in all."""


class FixedLevels:
    """Levels that were given."""

    def __init__(self, levels: Levels) -> None:
        self.now: Final = levels

    def finished(self, service_ms: float) -> None:
        """Changes nothing."""


class FollowingLevels:
    """Levels whose top bound follows the mean service of finished programs, slowly and in one direction at a time.

    After every ``PROGRAMS_PER_CHANGE`` finished programs a top bound outside of ``BAND`` moves towards it by at most
    ``LARGEST_CHANGE``, and never past its nearer end: as long as programs stay as they are it only rises or only
    falls, and then stands still.
    """

    def __init__(self, top_ms: float = FIRST_TOP_MS) -> None:
        self._top = top_ms
        self._mean = 0.0
        self._finished = 0
        self._now = self._levels()

    @property
    def now(self) -> Levels:
        """The levels for new calls."""
        return self._now

    @property
    def mean_ms(self) -> float:
        """Mean service of the programs that finished lately."""
        return self._mean

    def finished(self, service_ms: float) -> None:
        """A program is over, and had this service in all."""
        self._finished += 1
        self._mean += (service_ms - self._mean) / min(self._finished, MEMORY)
        if self._finished % PROGRAMS_PER_CHANGE == 0:
            self._follow()

    def _follow(self) -> None:
        low, high = (limited(share * self._mean) for share in BAND)
        top = self._top
        if top < low:
            top = min(low, top * LARGEST_CHANGE)
        elif top > high:
            top = max(high, top / LARGEST_CHANGE)
        if top != self._top:
            self._top = top
            self._now = self._levels()

    def _levels(self) -> Levels:
        return Levels.of([share * self._top for share in SHARES])


def limited(top_ms: float) -> float:
    """The nearest top bound that is allowed."""
    return min(max(top_ms, TOP_LIMITS_MS[0]), TOP_LIMITS_MS[1])


def level_source(settings: SchedulingSettings, policy: Policy) -> LevelSource:
    """The levels as the settings want them; a single one for a policy without levels."""
    if not policy.multilevel:
        return FixedLevels(Levels.of(()))
    if isinstance(settings.queue_bounds_ms, str):
        return FollowingLevels()
    return FixedLevels(Levels.of(settings.queue_bounds_ms, settings.quanta_ms))
