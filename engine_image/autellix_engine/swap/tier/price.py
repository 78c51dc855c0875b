"""What it costs that a call gives way, against what another call gains by it.

A call that comes back brings its blocks from host memory and computes again what is not there (or all of it, where
that is quicker). Whoever gets its slot saves the wait for the next slot that would have become free anyway. The slot is
worth taking while the first is less than the second. Everything is estimated from what was seen so far; where nothing
was seen yet, giving way counts as free, so that the estimate never keeps a fresh engine from its order of calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_WEIGHT: Final = 0.1
"""Of the newest observation."""


class Mean:
    """An exponentially weighted mean; None until something was seen."""

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        """One more observation."""
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


@dataclass(frozen=True, slots=True)
class Context:
    """What a running call would have to get back.

    Attributes:
        computed: tokens in its KV cache.
        kept: those of them that are in host memory, or on their way there.
    """

    computed: int
    kept: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running call is, in output tokens; ``most``: where it ends at the latest."""

    generated: int
    most: int


class Prices:
    """The estimates. Seconds, bytes, tokens."""

    def __init__(self, bytes_per_token: float) -> None:
        self._bytes_per_token = bytes_per_token
        self.seconds_per_byte: Final = Mean()
        """Of loads."""
        self.seconds_per_token: Final = Mean()
        """Of computing prompts."""
        self.step_seconds: Final = Mean()
        """Of steps that compute no prompt."""
        self.output_tokens: Final = Mean()
        """Of calls that ended."""

    def move_seconds(self, tokens: int) -> float:
        """To bring the KV cache of so many tokens from host memory."""
        return tokens * self._bytes_per_token * (self.seconds_per_byte.value or 0.0)

    def compute_seconds(self, tokens: int) -> float:
        """To compute so many tokens again."""
        return tokens * (self.seconds_per_token.value or 0.0)

    def resume_seconds(self, context: Context) -> float:
        """Until a call that gave way is as far as before, once it has a slot again."""
        all_again = self.compute_seconds(context.computed)
        moved = self.move_seconds(context.kept) + self.compute_seconds(context.computed - context.kept)
        return min(all_again, moved)

    def wait_seconds(self, running: Iterable[Progress]) -> float:
        """Until the first of these calls is expected to end. One that has generated less than usual is expected to end
        as usual, one that has generated more to generate as much again."""
        usual = self.output_tokens.value or 0.0
        rest = min((min(p.most - p.generated, max(usual - p.generated, p.generated)) for p in running), default=0.0)
        return rest * (self.step_seconds.value or 0.0)

    def pays(self, leaving: Sequence[Context], running: Iterable[Progress]) -> bool:
        """Whether these running calls should give way to one that waits."""
        if self.step_seconds.value is None or self.output_tokens.value is None:
            return True
        cost = sum(map(self.resume_seconds, leaving))
        return cost == 0.0 or cost < self.wait_seconds(running)
