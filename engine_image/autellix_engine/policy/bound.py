"""The bound on waiting of docs/scheduling.md, watched while an engine runs.

Its second half can be watched: a promoted call has a slot after

    N * d + (floor(P / C) + 1) * ( max(q0, r) + d + ceil(C / M) * N * d )

with the letters of the documentation. P promoted calls go first, C at a time; each time the slots' holders first use up
a turn, which is the best level's quantum or their minimum run, and then give way, M in each decision.
"""

import math
from collections.abc import Iterable
from typing import Final

from autellix_engine.policy.calls import Call

#: How long the longest step is remembered at least, in milliseconds of executor time; at most twice as long.
WINDOW_MS: Final = 60_000.0


class BoundWatch:
    """Compares the waits of promoted calls with their bound."""

    def __init__(self, *, steps_per_decision: int, max_preemptions_per_step: int) -> None:
        self._steps_per_decision = steps_per_decision
        self._max_preemptions = max_preemptions_per_step
        self._longest = self._longest_before = self._elapsed = 0.0
        self._slots = 1

    def step(self, ms: float) -> None:
        """A step took this long. The longest of late counts: one slow step at the start must not hide all after it."""
        self._elapsed += ms
        if self._elapsed >= WINDOW_MS:
            self._elapsed, self._longest_before, self._longest = 0.0, self._longest, 0.0
        if ms > self._longest:
            self._longest = ms

    def slots(self, count: int) -> None:
        """There are so many slots."""
        self._slots = count

    def limit_ms(self, *, promoted_before: int, slots: int, turn_ms: float) -> float:
        """How long a promoted call waits at most if it is ready and fits into memory."""
        step = max(self._longest, self._longest_before)
        decision = self._steps_per_decision * step
        handover = math.ceil(slots / self._max_preemptions) * decision
        return decision + (promoted_before // slots + 1) * (turn_ms + step + handover)

    def is_broken(self, call: Call, now: float, running: Iterable[Call]) -> bool:
        """Whether a promoted call, which now gets its slot or ends without, has waited for too long.

        Nobody gives way where preemption is switched off, so there is no bound.
        """
        if call.promoted_at is None or self._max_preemptions == 0:
            return False
        others = list(running)
        holders = [other for other in others if other.gives_way]
        limit = self.limit_ms(
            promoted_before=call.promoted_behind,
            slots=max(1, self._slots - (len(others) - len(holders))),
            turn_ms=max(max(other.quanta[0], other.min_run) for other in (call, *holders)),
        )
        return now - call.promoted_at > limit
