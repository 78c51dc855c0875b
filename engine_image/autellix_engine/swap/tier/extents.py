"""Which slots of the pool are free, and where the next blocks of a call go so that they lie side by side."""

import heapq
import itertools


class FreeSlots:
    """Runs of free slots. Taking and giving back costs O(log runs), whatever the size of the pool."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self._slots = slots
        self._length: dict[int, int] = {}  # of the run that starts here
        self._start: dict[int, int] = {}  # of the run that ends before here
        self._largest: list[
            tuple[int, int]
        ] = []  # heap of (-length, start); entries that no longer hold are passed over
        if slots:
            self._add(0, slots)

    def take(self, count: int, after: int | None = None) -> list[range]:
        """Takes ``count`` slots in as few pieces as there are runs for, in the order in which they are to be filled.

        Args:
            count: at most ``free``.
            after: slot of the block before; what follows it is taken first, so that a call grows in place.

        A piece that has no place to continue goes into the middle of the largest run: so the call that ends before
        that run and the new one can both grow.
        """
        if count > self.free:
            raise ValueError(f"{count} slots wanted, {self.free} are free")
        pieces: list[range] = []
        if after is not None and count and after + 1 in self._length:
            pieces.append(self._carve(after + 1, 0, min(count, self._length[after + 1])))
            count -= len(pieces[0])
        while count:
            start, length = self._find_largest()
            wanted = min(count, length)
            offset = 0 if start == 0 else (length - wanted) // 2
            pieces.append(self._carve(start, offset, wanted))
            count -= wanted
        return pieces

    def give_back_run(self, run: range) -> None:
        """Returns taken slots that lie side by side."""
        start, end = run.start, run.stop
        self.free += end - start
        if start in self._start:
            before = self._start[start]
            self._remove(before)
            start = before
        if end in self._length:
            end += self._remove(end)
        self._add(start, end - start)

    def check_integrity(self) -> None:
        """Raises AssertionError if the state contradicts itself. Looks at everything: for tests."""
        runs = sorted(self._length.items())
        assert all(start >= 0 and length > 0 and start + length <= self._slots for start, length in runs)
        assert all(start + length < after for (start, length), (after, _) in itertools.pairwise(runs))
        assert sum(length for _, length in runs) == self.free
        assert self._start == {start + length: start for start, length in runs}
        assert {(-length, start) for start, length in runs} <= set(self._largest)

    def runs(self) -> list[range]:
        """The free runs in order of their start."""
        return [range(start, start + length) for start, length in sorted(self._length.items())]

    def _carve(self, start: int, offset: int, count: int) -> range:
        length = self._remove(start)
        self.free -= count
        if offset:
            self._add(start, offset)
        if rest := length - offset - count:
            self._add(start + offset + count, rest)
        return range(start + offset, start + offset + count)

    def _add(self, start: int, length: int) -> None:
        self._length[start] = length
        self._start[start + length] = start
        heapq.heappush(self._largest, (-length, start))
        if len(self._largest) > 64 + 4 * len(self._length):
            self._largest = [(-length, start) for start, length in self._length.items()]
            heapq.heapify(self._largest)

    def _remove(self, start: int) -> int:
        length = self._length.pop(start)
        del self._start[start + length]
        return length

    def _find_largest(self) -> tuple[int, int]:
        while True:
            length, start = self._largest[0]
            if self._length.get(start) == -length:
                return start, -length
            heapq.heappop(self._largest)
