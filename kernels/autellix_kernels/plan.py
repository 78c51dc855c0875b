"""How a transfer is cut up and which way it takes. Pure functions."""

from collections.abc import Iterator
from enum import StrEnum

from autellix_kernels.layout import BlockLayout
from autellix_kernels.settings import SwapSettings


class Direction(StrEnum):
    """STORE: GPU to host. LOAD: host to GPU."""

    STORE = "store"
    LOAD = "load"


class Path(StrEnum):
    """GATHER: by kernel through staging, one bus copy per slab.

    BATCH: one batched copy of the driver, fragment by fragment.
    """

    GATHER = "gather"
    BATCH = "batch"


def choose_path(layout: BlockLayout, blocks: int, settings: SwapSettings, *, batched_copy: bool) -> Path:
    """The path of a transfer of so many blocks; always GATHER where the driver has no batched copy."""
    if not batched_copy:
        return Path.GATHER
    small = layout.mean_fragment_bytes < settings.gather_below_bytes
    many = blocks * len(layout.regions) >= settings.gather_from_fragments
    return Path.GATHER if small and many else Path.BATCH


def chunks(blocks: int, most: int) -> Iterator[slice]:
    """Cuts `blocks` into as few chunks of at most `most` as will do, equal to within one block.

    Equal chunks keep bus and kernel in step; a short last one would leave the bus idle before it.
    """
    count = -(-blocks // most)
    for i in range(count):
        yield slice(i * blocks // count, (i + 1) * blocks // count)
