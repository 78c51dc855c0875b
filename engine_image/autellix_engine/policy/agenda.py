"""What is due first: a map from items to times with a cheap minimum."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Agenda(Generic[T]):
    """Items with a time each. Setting costs O(log n), discarding O(1); stale heap entries are cleaned up lazily."""

    __slots__ = ("_entries", "_heap", "_serial")

    def __init__(self) -> None:
        self._entries: dict[T, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._serial = 0  # breaks ties in order of setting, so that items need not be comparable

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, item: T) -> bool:
        return item in self._entries

    def set(self, item: T, time: float) -> None:
        """Adds the item or moves it."""
        self._serial += 1
        self._entries[item] = (time, self._serial)
        heapq.heappush(self._heap, (time, self._serial, item))
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [(time, serial, item) for item, (time, serial) in self._entries.items()]
            heapq.heapify(self._heap)

    def discard(self, item: T) -> bool:
        """Removes the item if it is there; returns whether it was."""
        return self._entries.pop(item, None) is not None

    def first(self) -> tuple[float, T] | None:
        """The earliest time and its item; None if there is none."""
        while self._heap:
            time, serial, item = self._heap[0]
            if self._entries.get(item) == (time, serial):
                return time, item
            heapq.heappop(self._heap)
        return None
