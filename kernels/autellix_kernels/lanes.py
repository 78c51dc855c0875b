"""State of one direction of the swap engine: its streams, its staging slabs in turn, its transfers in flight."""

from collections import deque
from dataclasses import dataclass, field

from autellix_kernels.device import Event, Stream
from autellix_kernels.transfers import Transfer


@dataclass(frozen=True)
class StagingSlab:
    """A slab on the GPU. `filled` and `emptied` are recorded anew each time it goes round."""

    address: int
    filled: Event
    emptied: Event


@dataclass(frozen=True)
class Flight:
    """Events of a transfer.

    Attributes:
        start: nothing but the lane itself holds it back.
        cache_done: its cache blocks are no longer read (store), or are written (load).
        done: all of it.
    """

    transfer: Transfer
    start: Event
    cache_done: Event
    done: Event


@dataclass
class Lane:
    """One direction. `flights` holds the oldest first: transfers of a direction end in the order of submission."""

    cache: Stream
    bus: Stream
    slabs: tuple[StagingSlab, ...]
    flights: deque[Flight] = field(default_factory=deque)
    _turn: int = 0

    def next_slab(self) -> StagingSlab:
        """The slab whose turn it is."""
        slab = self.slabs[self._turn]
        self._turn = (self._turn + 1) % len(self.slabs)
        return slab
