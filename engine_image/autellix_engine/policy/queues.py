"""Queues of calls by level: first come, first served inside a level, ordered iteration, cheap removal."""

from bisect import bisect_left
from collections.abc import Iterator

from autellix_engine.policy.calls import Call


class LevelQueues:
    """K queues, best level first. ``level`` and ``order`` of a call must not change while it is inside.

    A queue is a sorted list of order numbers: nearly all additions are at its end, and one in the middle (a preempted
    call that keeps its place) moves a few kilobytes at worst.
    """

    def __init__(self, levels: int) -> None:
        self._orders: list[list[int]] = [[] for _ in range(levels)]
        self._calls: list[dict[int, Call]] = [{} for _ in range(levels)]

    def add(self, call: Call) -> None:
        """Puts the call at the place that its ``order`` gives it."""
        orders = self._orders[call.level]
        if not orders or orders[-1] < call.order:
            orders.append(call.order)
        else:
            orders.insert(bisect_left(orders, call.order), call.order)
        self._calls[call.level][call.order] = call

    def remove(self, call: Call) -> None:
        """Takes the call out. Raises KeyError if it is not inside."""
        del self._calls[call.level][call.order]
        orders = self._orders[call.level]
        del orders[bisect_left(orders, call.order)]

    def sizes(self) -> tuple[int, ...]:
        """Number of calls in each level."""
        return tuple(map(len, self._orders))

    def __len__(self) -> int:
        return sum(map(len, self._orders))

    def __contains__(self, call: Call) -> bool:
        return self._calls[call.level].get(call.order) is call

    def __iter__(self) -> Iterator[Call]:
        """Best level first, earliest first."""
        for orders, calls in zip(self._orders, self._calls, strict=True):
            for order in orders:
                yield calls[order]

    def __reversed__(self) -> Iterator[Call]:
        """Worst level first, latest first."""
        for orders, calls in zip(reversed(self._orders), reversed(self._calls), strict=True):
            for order in reversed(orders):
                yield calls[order]

    def first(self) -> Call | None:
        """The earliest of the best level that has any."""
        for orders, calls in zip(self._orders, self._calls, strict=True):
            if orders:
                return calls[orders[0]]
        return None

    def heads(self, count: int) -> Iterator[Call]:
        """The first calls of each level, at most so many of each."""
        for orders, calls in zip(self._orders, self._calls, strict=True):
            for order in orders[:count]:
                yield calls[order]

    def check_integrity(self) -> None:
        """Raises AssertionError if order, level and contents contradict one another."""
        for level, (orders, calls) in enumerate(zip(self._orders, self._calls, strict=True)):
            assert orders == sorted(calls)
            assert all(call.level == level and call.order == order for order, call in calls.items())
