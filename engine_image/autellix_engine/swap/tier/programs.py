"""What the tier knows of programs and of their calls that are in the engine."""

import enum
from dataclasses import dataclass, field
from typing import NewType

Key = NewType("Key", bytes)
"""Names a block by its content: a hash over its tokens and all tokens before them."""

#: Bytes of a key that are kept to recognise a context that is no longer in the pool.
DIGEST_BYTES = 8


class Standing(enum.IntEnum):
    """How much a program's context is worth keeping: the lower leaves first."""

    ENDED = 0
    """Nobody will come back for it."""
    IDLE = 1
    """Lives, with no call in the engine."""
    ACTIVE = 2
    """Has a call in the engine."""


@dataclass(slots=True, eq=False)
class Program:
    """One program. Times are seconds on the caller's clock."""

    id: str
    transient: bool
    """It consists of one call and counts as ended with it."""
    ended: bool = False
    calls: "set[Call]" = field(default_factory=set)
    """Its calls that are in the engine."""
    blocks: dict[int, None] = field(default_factory=dict)
    """Slots that it keeps, parents before children: the last one is the tail, which is dropped first."""
    idle_since: float = 0.0
    gap: float | None = None
    """Smoothed time from the end of its last call to its next call."""
    due: float = 0.0
    """When its next call is expected; meaningful while it is idle."""
    brought_back: bool = False
    """Whether its context was brought back to the device since it became idle, or that was tried."""
    trail: bytes = b""
    """Digests of all blocks of the call that ended last, kept or not: its known context."""

    @property
    def standing(self) -> Standing:
        if self.calls and not self.ended:
            return Standing.ACTIVE
        return Standing.ENDED if self.ended or self.transient else Standing.IDLE

    @property
    def waits(self) -> bool:
        """Whether one of its calls waits: the copies may be all that is left of what it computed."""
        return any(call.waits for call in self.calls)

    @property
    def level(self) -> int:
        """Best level of its calls; 0 is the best."""
        return min((call.level for call in self.calls), default=0)

    def worth(self, now: float) -> tuple[int, float, float]:
        """Of two programs the one with the smaller worth leaves first. An idle one is worth the less the farther now
        is from the moment it was expected: one that is due soon or just overdue is kept, one that has just left for
        long or has been gone for too long is not."""
        match self.standing:
            case Standing.ENDED:
                return Standing.ENDED, 0, 0
            case Standing.IDLE:
                return Standing.IDLE, -abs(self.due - now), 0
            case Standing.ACTIVE:
                return Standing.ACTIVE, self.waits, -self.level


@dataclass(slots=True, eq=False)
class Call:
    """A call in the engine, and after it for as long as its transfers run."""

    id: str
    program: Program
    level: int
    waits: bool = True
    """Whether it waits for a slot of the engine, not started or preempted."""
    chain: list[Key] = field(default_factory=list)
    """Its blocks from the first on, as far as they were offered for storing."""
    storing: dict[Key, int] = field(default_factory=dict)
    """Slots that its stores in flight write."""
    loading: dict[Key, int] = field(default_factory=dict)
    """Slots that its load in flight reads."""
    moved_blocks: int = 0
    """Blocks of all its transfers, both directions."""


def digests(keys: list[Key]) -> bytes:
    """What is kept of a call's blocks."""
    return b"".join([key[:DIGEST_BYTES] for key in keys])


def common_blocks(one: bytes, other: bytes) -> int:
    """Blocks at the beginning that two contexts share. Each digest stands for all blocks before it too."""
    low, high = 0, min(len(one), len(other)) // DIGEST_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        place = slice((middle - 1) * DIGEST_BYTES, middle * DIGEST_BYTES)
        low, high = (middle, high) if one[place] == other[place] else (low, middle - 1)
    return low
