"""Where the blocks of a KV cache lie: one fragment per tensor, at a fixed stride. Pure arithmetic on addresses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from autellix_kernels.errors import LayoutError

WORD_BYTES = 16
"""Width of the kernel's wide accesses; fragments start at multiples of it in staging and in host memory."""

IdArray: TypeAlias = npt.NDArray[np.int32]
AddressArray: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Region:
    """The fragments of one tensor: block `i` has `fragment_bytes` bytes at `base + i * block_stride`.

    A tensor that keeps keys and values apart, as (2, blocks, ...), is two regions.

    Attributes:
        base: address of block 0 in GPU memory.
        blocks: number of blocks.
        block_stride: bytes from one block to the next; at least `fragment_bytes`.
        fragment_bytes: bytes of a block in this tensor, without padding.
    """

    base: int
    blocks: int
    block_stride: int
    fragment_bytes: int

    def __post_init__(self) -> None:
        if self.base <= 0 or self.blocks < 1 or self.fragment_bytes < 1 or self.block_stride < self.fragment_bytes:
            raise LayoutError(
                f"{self}: base, blocks and fragment_bytes must be positive, block_stride at least fragment_bytes"
            )
        if self.end > 2**64:
            raise LayoutError(f"{self}: ends beyond the address space")

    @property
    def end(self) -> int:
        """First address behind the last fragment."""
        return self.base + (self.blocks - 1) * self.block_stride + self.fragment_bytes

    def overlaps(self, other: "Region") -> bool:
        """Whether a fragment of this tensor may share a byte with one of the other.

        Exact where the strides are equal (interleaved tensors are common); otherwise tensors whose extents meet count
        as overlapping.
        """
        if self.end <= other.base or other.end <= self.base:
            return False
        if self.block_stride != other.block_stride:
            return True
        phase = (other.base - self.base) % self.block_stride
        return phase < self.fragment_bytes or phase + other.fragment_bytes > self.block_stride


@dataclass(frozen=True)
class BlockLayout:
    """All tensors of one KV-cache group. A staged block is its fragments in the order of `regions`, each at a multiple
    of 16 bytes.

    Attributes:
        regions: the tensors; all have the same number of blocks, none overlaps another.
        staging_offsets: where each tensor's fragment starts in a staged block, in bytes.
        block_bytes: size of a staged block, a multiple of 16.
        payload_bytes: bytes of a block that mean something: `block_bytes` without padding.
    """

    regions: tuple[Region, ...]
    staging_offsets: tuple[int, ...] = field(init=False)
    block_bytes: int = field(init=False)
    payload_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.regions:
            raise LayoutError("a layout needs at least one region")
        counts = {region.blocks for region in self.regions}
        if len(counts) > 1:
            raise LayoutError(
                f"all regions of a layout must have the same number of blocks, these have {sorted(counts)}"
            )
        _refuse_overlaps(self.regions)
        offsets, end = [], 0
        for region in self.regions:
            offsets.append(end)
            end += -(-region.fragment_bytes // WORD_BYTES) * WORD_BYTES
        object.__setattr__(self, "staging_offsets", tuple(offsets))
        object.__setattr__(self, "block_bytes", end)
        object.__setattr__(self, "payload_bytes", sum(region.fragment_bytes for region in self.regions))

    @property
    def blocks(self) -> int:
        """Number of blocks of the cache."""
        return self.regions[0].blocks

    @property
    def mean_fragment_bytes(self) -> float:
        """Mean size of a fragment, which decides the path of a transfer."""
        return self.payload_bytes / len(self.regions)

    @property
    def largest_fragment_bytes(self) -> int:
        """Size of the largest fragment."""
        return max(region.fragment_bytes for region in self.regions)

    def fragment_addresses(self, blocks: IdArray) -> AddressArray:
        """Addresses of the fragments of `blocks` in GPU memory, shape (blocks, regions)."""
        bases = np.array([region.base for region in self.regions], dtype=np.uint64)
        strides = np.array([region.block_stride for region in self.regions], dtype=np.uint64)
        return bases + blocks.astype(np.uint64)[:, None] * strides

    def staged_addresses(self, block_addresses: AddressArray) -> AddressArray:
        """Addresses of the fragments of staged blocks that start at `block_addresses`, shape (blocks, regions)."""
        return block_addresses[:, None] + np.array(self.staging_offsets, dtype=np.uint64)

    def fragment_sizes(self, blocks: int) -> AddressArray:
        """Sizes that go with `fragment_addresses` of so many blocks, shape (blocks, regions)."""
        sizes = np.array([region.fragment_bytes for region in self.regions], dtype=np.uint64)
        return np.broadcast_to(sizes, (blocks, len(self.regions))).copy()


def checked_ids(name: str, values: Sequence[int] | npt.NDArray[np.integer], limit: int) -> IdArray:
    """Ids as a contiguous array, after a check that each lies in [0, limit) and none comes twice.

    Raises:
        LayoutError: naming `name` and what is wrong.
    """
    wide = np.asarray(values, dtype=np.int64)
    if wide.ndim != 1:
        raise LayoutError(f"{name}: expected one dimension, got {wide.ndim}")
    if wide.size:
        low, high = int(wide.min()), int(wide.max())
        if low < 0 or high >= limit:
            raise LayoutError(f"{name}: {low if low < 0 else high} is outside of [0, {limit})")
        ordered = np.sort(wide)
        same = ordered[1:][ordered[1:] == ordered[:-1]]
        if same.size:
            raise LayoutError(f"{name}: {int(same[0])} comes twice; a transfer may touch each only once")
    return np.ascontiguousarray(wide, dtype=np.int32)


def _refuse_overlaps(regions: Sequence[Region]) -> None:
    """Compares only neighbours in the order of addresses whose extents meet."""
    ordered = sorted(regions, key=lambda region: region.base)
    open_regions: list[Region] = []
    for region in ordered:
        open_regions = [earlier for earlier in open_regions if earlier.end > region.base]
        for earlier in open_regions:
            if earlier.overlaps(region):
                raise LayoutError(f"regions overlap: {earlier} and {region}")
        open_regions.append(region)
