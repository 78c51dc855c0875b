"""Typed wrapper of the kernels: it owns shapes, alignment, bounds and stream rules, so that the kernels need not."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from autellix_kernels.device import Device, Kernel, Stream
from autellix_kernels.errors import LayoutError
from autellix_kernels.layout import WORD_BYTES, BlockLayout, IdArray

THREADS = 128  # kThreads
TILE_BYTES = 8192  # kTileBytes
MAX_BLOCKS = 960  # kMaxBlocks
MAX_TILES = 2**30  # the kernel counts tiles in an int, one stride ahead

_REGION_DTYPE = np.dtype(
    [("base", "<u8"), ("block_stride", "<i8"), ("fragment_bytes", "<i8"), ("staging_offset", "<i8")]
)


class _BlockIds(ctypes.Structure):
    _fields_ = [("at", ctypes.c_int32 * MAX_BLOCKS)]


@dataclass(frozen=True)
class MoveKernels:
    """The two kernels of block_move.cu, loaded on a device."""

    gather: Kernel
    scatter: Kernel


class Mover(Protocol):
    """Moves blocks between the cache and a staging slab, in stream order. Never blocks the caller.

    Staging is `len(blocks) * layout.block_bytes` bytes at a multiple of 16; block `i` of the call lies at
    `i * layout.block_bytes`. The caller orders the stream after whoever wrote the source and before whoever reads the
    target, and keeps staging untouched meanwhile.

    Attributes:
        name: "nvrtc" or "torch"; for logs and metrics.
        max_blocks: most blocks of one call.
    """

    name: str
    max_blocks: int

    def gather(self, blocks: IdArray, staging: int, stream: Stream) -> None:
        """Cache to staging. `blocks`: distinct, in range."""

    def scatter(self, blocks: IdArray, staging: int, stream: Stream) -> None:
        """Staging to cache. `blocks`: distinct, in range."""

    def close(self) -> None:
        """Gives back what the mover holds on the device; nothing of it may be running."""


class KernelMover:
    """`Mover` by our own kernels.

    Sixteen bytes per access where the fragments' addresses allow it, else byte by byte.
    """

    name = "nvrtc"

    def __init__(self, device: Device, layout: BlockLayout, kernels: MoveKernels, *, thread_blocks: int) -> None:
        """Uploads the table of regions. Blocks until it is there.

        Args:
            thread_blocks: most thread blocks of a launch; how much of the GPU a transfer may take.

        Raises:
            LayoutError: a single block has more tiles than a launch can count.
        """
        self._device = device
        self._layout = layout
        self._kernels = kernels
        self._thread_blocks = thread_blocks
        self._tiles_per_fragment = -(-layout.largest_fragment_bytes // TILE_BYTES)
        self._tiles_per_block = self._tiles_per_fragment * len(layout.regions)
        self.max_blocks = min(MAX_BLOCKS, MAX_TILES // self._tiles_per_block)
        if self.max_blocks == 0:
            raise LayoutError(
                f"a block of {self._tiles_per_block} tiles of {TILE_BYTES} bytes is too large for one launch"
            )
        rows = [
            (r.base, r.block_stride, r.fragment_bytes, offset)
            for r, offset in zip(layout.regions, layout.staging_offsets, strict=True)
        ]
        table = np.array(rows, dtype=_REGION_DTYPE)
        self._regions = device.allocate(table.nbytes)
        stream = device.create_stream()
        device.copy(self._regions, table.ctypes.data, table.nbytes, stream)
        device.synchronize_stream(stream)
        device.destroy_stream(stream)

    def gather(self, blocks: IdArray, staging: int, stream: Stream) -> None:
        """See `Mover`.

        Raises:
            LayoutError: ids out of range, too many, of another type, or staging not aligned.
        """
        self._launch(self._kernels.gather, blocks, staging, stream)

    def scatter(self, blocks: IdArray, staging: int, stream: Stream) -> None:
        """See `Mover`.

        Raises:
            LayoutError: as `gather`; also when an id comes twice, since two writers of one block would race.
        """
        self._launch(self._kernels.scatter, blocks, staging, stream, distinct=True)

    def close(self) -> None:
        """See `Mover`."""
        self._device.free(self._regions)

    def _launch(self, kernel: Kernel, blocks: IdArray, staging: int, stream: Stream, *, distinct: bool = False) -> None:
        if blocks.dtype != np.int32 or blocks.ndim != 1 or not blocks.flags.c_contiguous:
            raise LayoutError("blocks: expected a contiguous one-dimensional array of int32")
        if staging <= 0 or staging % WORD_BYTES:
            raise LayoutError(f"staging: address {staging:#x} is not a positive multiple of {WORD_BYTES}")
        count = blocks.size
        if count == 0:
            return
        if count > self.max_blocks:
            raise LayoutError(f"blocks: {count} at once, at most {self.max_blocks} are allowed")
        values = blocks.tolist()  # a handful as a rule: Python's own functions are faster than numpy's here
        if min(values) < 0 or max(values) >= self._layout.blocks:
            raise LayoutError(f"blocks: an id is outside of [0, {self._layout.blocks})")
        if distinct and len(set(values)) != count:
            raise LayoutError("blocks: an id comes twice; two writers of one block would race")
        ids = _BlockIds()
        ctypes.memmove(ids.at, blocks.ctypes.data, blocks.nbytes)
        arguments = (
            ctypes.c_uint64(self._regions),
            ctypes.c_int32(len(self._layout.regions)),
            ctypes.c_int32(self._tiles_per_fragment),
            ctypes.c_uint64(staging),
            ctypes.c_int64(self._layout.block_bytes),
            ctypes.c_int32(count),
            ids,
        )
        self._device.launch(kernel, min(self._thread_blocks, count * self._tiles_per_block), THREADS, arguments, stream)


def source_folder() -> Path:
    """The folder of the kernels' source: inside the installed package, beside the package in a checkout."""
    here = Path(__file__).parent
    packaged = here / "csrc"
    return packaged if packaged.is_dir() else here.parent / "csrc"
