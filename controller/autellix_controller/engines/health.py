"""Whether an engine gets calls, as a pure function of what was seen of it."""

from enum import Enum, auto
from typing import Final

import msgspec

#: Failed calls in a row after which an engine leaves rotation until a probe succeeds.
OUTLIER_FAILURES: Final = 3


class Seen(Enum):
    """What can be seen of an engine."""

    ANSWERED = auto()
    """A call got a proper answer."""
    FAILED = auto()
    """A call got a server error, a broken answer, or nothing in time; or a probe got nothing in time."""
    UNREACHABLE = auto()
    """Connections are refused: nothing listens."""
    PROBED = auto()
    """A probe succeeded."""


class Health(msgspec.Struct, frozen=True):
    """What we hold of an engine. A new one is unknown, and gets nothing before its first good probe."""

    reachable: bool = False
    failures: int = 0

    @property
    def outlier(self) -> bool:
        """It answers connections, but its last calls all failed."""
        return self.failures >= OUTLIER_FAILURES

    @property
    def well(self) -> bool:
        """Nothing speaks against giving it calls."""
        return self.reachable and not self.outlier

    def after(self, seen: Seen) -> "Health":
        """The health after one more observation.

        Failed calls count in a row. Being unreachable counts at once, since the next call would only wait for the same
        refusal. Only a probe brings an engine back: an answer that was already on its way proves nothing. A probe is
        no call either: an outlier comes back on trial, and its next failed call takes it out again.
        """
        match seen:
            case Seen.ANSWERED:
                return self if self.outlier or not self.failures else msgspec.structs.replace(self, failures=0)
            case Seen.FAILED:
                return msgspec.structs.replace(self, failures=self.failures + 1)
            case Seen.UNREACHABLE:
                return msgspec.structs.replace(self, reachable=False)
            case Seen.PROBED:
                return Health(reachable=True, failures=min(self.failures, OUTLIER_FAILURES - 1))
