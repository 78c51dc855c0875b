"""Time for closed-loop measurements on a machine that others use too: idle time is skipped, and so is theirs."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Clock(Protocol):
    """Seconds, for scheduler and programs alike."""

    def __call__(self) -> float:
        """Now."""

    def step(self, calls: int, tokens: int) -> None:
        """A step with so many calls and tokens is about to be computed."""

    def skip_to(self, seconds: float) -> None:
        """Nothing happens until then."""


@dataclass(frozen=True)
class Step:
    """One step of an engine: what was in it and the CPU time that it took."""

    calls: int
    tokens: int
    seconds: float


class CpuClock:
    """CPU time of this process since the clock was made. Keeps what each step took."""

    def __init__(self) -> None:
        self._skipped = -time.process_time()
        self._begun: tuple[int, int, float] | None = None
        self.steps: list[Step] = []

    def __call__(self) -> float:
        return time.process_time() + self._skipped

    def step(self, calls: int, tokens: int) -> None:
        now = self()
        if self._begun is not None:
            before_calls, before_tokens, began = self._begun
            self.steps.append(Step(before_calls, before_tokens, now - began))
        self._begun = calls, tokens, now

    def skip_to(self, seconds: float) -> None:
        self._skipped += max(0.0, seconds - self())


class ModelClock:
    """Each step takes what such a step takes on this machine: a + b * calls + c * tokens, fitted to measured steps.

    Where the CPU time of the same step differs by a third between two minutes, as it does on a shared machine, this
    compares orders of calls instead of minutes.
    """

    def __init__(self, coefficients: tuple[float, float, float]) -> None:
        self._coefficients = coefficients
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def step(self, calls: int, tokens: int) -> None:
        base, each_call, each_token = self._coefficients
        self._now += base + each_call * calls + each_token * tokens

    def skip_to(self, seconds: float) -> None:
        self._now = max(self._now, seconds)


def fit(steps: Iterable[Step]) -> tuple[float, float, float]:
    """Least squares, with steps that took much longer than such steps do (somebody else's doing) left out."""
    kept = [step for step in steps if step.calls]
    coefficients: Any = None
    for _ in range(3):
        facts = np.array([(1.0, step.calls, step.tokens) for step in kept])
        seconds = np.array([step.seconds for step in kept])
        coefficients = np.maximum(np.linalg.lstsq(facts, seconds, rcond=None)[0], 0.0)
        usual = facts @ coefficients
        kept = [step for step, expected in zip(kept, usual, strict=True) if step.seconds < 1.5 * expected]
    return float(coefficients[0]), float(coefficients[1]), float(coefficients[2])
