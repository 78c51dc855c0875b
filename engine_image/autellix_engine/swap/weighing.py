"""Puts `Prices` between the scheduler's plan and its forecast of memory, and feeds them with what steps take."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from autellix_engine.swap.interface import Fits
from autellix_engine.swap.tier.price import Context, Prices, Progress

#: Fewer prompt tokens in a step say nothing of what a prompt costs.
_LEAST_PROMPT_TOKENS = 64


class Keyed(Protocol):
    """A call of the decision core."""

    key: str


class Weighing:
    """For one decision: calls give way only where there is room for the better one and it pays.

    Used as the plan's ``fits``. Calls are asked about in the order of the plan; those that gave way to an earlier one
    have been paid for.
    """

    def __init__(
        self,
        prices: Prices,
        requests: Mapping[str, Request],
        running: Iterable[Request],
        kept_tokens: Callable[[Request], int],
        fits: Fits,
    ) -> None:
        self._prices = prices
        self._requests = requests
        self._running = [Progress(request.num_output_tokens, request.max_tokens) for request in running]
        self._kept_tokens = kept_tokens
        self._fits = fits
        self._asked: str | None = None
        self._granted: frozenset[str] = frozenset()
        self._paid: frozenset[str] = frozenset()

    def __call__(self, call: Keyed, victims: Sequence[Keyed]) -> bool:
        """Whether the call fits once the victims have given way, and whether that pays."""
        if self._asked != call.key:
            self._asked, self._paid = call.key, self._granted
        leaving = [self._context(self._requests[each.key]) for each in victims if each.key not in self._paid]
        if leaving and not self._prices.pays(leaving, self._running):
            return False
        if not self._fits(call, victims):
            return False
        self._granted = frozenset(each.key for each in victims)
        return True

    def _context(self, request: Request) -> Context:
        computed: int = request.num_computed_tokens
        return Context(computed, min(computed, self._kept_tokens(request)))


def observe_step(prices: Prices, output: SchedulerOutput, seconds: float) -> None:
    """A step took so long."""
    tokens, calls = output.total_num_scheduled_tokens, len(output.num_scheduled_tokens)
    if not calls or seconds <= 0:
        return
    prompt_tokens = tokens - calls
    if prompt_tokens == 0:
        prices.step_seconds.add(seconds)
    elif prompt_tokens >= _LEAST_PROMPT_TOKENS:
        prices.seconds_per_token.add(max(0.0, seconds - (prices.step_seconds.value or 0.0)) / prompt_tokens)
