"""The bound on waiting of docs/scheduling.md, watched while an engine runs.

Its second half can be watched: a promoted call has a slot after

    N * d + (floor(P / C) + 1) * ( max(q0, r) + d + ceil(C / M) * N * d )

with the letters of the documentation. P promoted calls go first, C at a time; each time the slots' holders first use up
a turn, which is the best level's quantum or their minimum run, and then give way, M in each decision.
"""

import math
from typing import Final

from autellix_engine.policy.calls import Call

#: How long the longest step and turn are remembered at least, in milliseconds of executor time; at most twice as long.
WINDOW_MS: Final = 60_000.0


class RecentMaximum:
    """The largest value of late: one slow step at the start must not hide all that comes after it."""

    def __init__(self) -> None:
        self._now = self._before = self._age = 0.0

    def observe(self, value: float) -> None:
        """A value of this moment."""
        if value > self._now:
            self._now = value

    def pass_time(self, ms: float) -> None:
        """So much time has passed."""
        self._age += ms
        if self._age >= WINDOW_MS:
            self._age, self._before, self._now = 0.0, self._now, 0.0

    @property
    def value(self) -> float:
        return max(self._now, self._before)


class BoundWatch:
    """Compares the waits of promoted calls with their bound."""

    def __init__(self, *, steps_per_decision: int, max_preemptions_per_step: int) -> None:
        self._steps_per_decision = steps_per_decision
        self._max_preemptions = max_preemptions_per_step
        self._step = RecentMaximum()
        self._turn = RecentMaximum()
        self._slots = 1

    def step(self, ms: float) -> None:
        """A step took this long."""
        for each in (self._step, self._turn):
            each.pass_time(ms)
        self._step.observe(ms)

    def turn(self, call: Call) -> None:
        """A call gets a slot. Turns are the same for all, unless levels change."""
        self._turn.observe(max(call.quanta[0], call.min_run))

    def slots(self, count: int) -> None:
        """There are so many slots whose holders may give way."""
        self._slots = max(1, count)

    def is_broken(self, call: Call, now: float) -> bool:
        """Whether a promoted call, which now gets its slot or ends without, has waited for too long.

        Nobody gives way where preemption is switched off, so there is no bound.
        """
        if call.promoted_at is None or self._max_preemptions == 0:
            return False
        decision = self._steps_per_decision * self._step.value
        handover = math.ceil(self._slots / self._max_preemptions) * decision
        turns = call.promoted_behind // self._slots + 1
        limit = decision + turns * (self._turn.value + self._step.value + handover)
        return now - call.promoted_at > limit
