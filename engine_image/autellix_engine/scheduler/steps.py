"""How long the executor worked on each step, and the scheduler on its decisions."""

from bisect import bisect_left
from collections import deque
from collections.abc import Container
from typing import Final

from autellix_engine.records.interface import DECISION_SECONDS


class StepClock:
    """Turns the begin and end of steps into executor time, in milliseconds on the caller's clock.

    Steps end in the order in which they began, but with asynchronous scheduling a step begins before its predecessor
    has ended. The executor works on one at a time, so a step's time counts from its begin or from the end of its
    predecessor, whichever is later: no moment is charged to two steps.
    """

    def __init__(self) -> None:
        self._begun: deque[tuple[object, Container[str], float]] = deque()
        self._last_end = float("-inf")

    def begin(self, step: object, calls: Container[str], now: float) -> None:
        """The step with these calls was handed to the executor."""
        self._begun.append((step, calls, now))

    def end(self, step: object, now: float) -> float:
        """The step's output is here; returns its executor time, 0 if it never began. Steps before it are dropped."""
        elapsed = 0.0
        while self._begun:
            begun, _, since = self._begun.popleft()
            if begun is step:
                elapsed = max(0.0, now - max(since, self._last_end))
                break
        self._last_end = now
        return elapsed

    def elapsed(self, call: str, now: float) -> float:
        """Executor time so far of the step that the executor works on; 0 if there is none or the call is not in it."""
        if not self._begun:
            return 0.0
        _, calls, since = self._begun[0]
        return max(0.0, now - max(since, self._last_end)) if call in calls else 0.0


class DecisionTimes:
    """Counts decisions by the class of their time."""

    def __init__(self) -> None:
        self.counts: Final = [0] * (len(DECISION_SECONDS) + 1)
        """Decisions in each class of ``DECISION_SECONDS``, and above the last."""
        self.seconds = 0.0
        """Time of all decisions."""

    def add(self, seconds: float) -> None:
        """A decision took this long."""
        self.counts[bisect_left(DECISION_SECONDS, seconds)] += 1
        self.seconds += seconds
