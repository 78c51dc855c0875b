"""Memory for one run, and layouts cut from it: a scattered cache on the device, slots in pinned host memory."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autellix_kernels.device import Device, Stream
from autellix_kernels.layout import BlockLayout, IdArray, Region
from autellix_kernels.mover import KernelMover, MoveKernels
from autellix_kernels.pool import HostPool, Slab
from autellix_kernels.settings import SwapSettings
from swapbench.cases import MIB, Geometry, Plan

Bytes = npt.NDArray[np.uint8]

PIECE = 16 * MIB

SPARE = 3
"""The cache has three blocks for each block of a transfer: one stored, one loaded, one left alone between them."""


@dataclass(frozen=True)
class Site:
    """Where one geometry lies.

    Blocks to store and to load are distinct and scattered, their slots are in one piece each.
    """

    geometry: Geometry
    layout: BlockLayout
    pool: HostPool
    stored_blocks: IdArray
    loaded_blocks: IdArray
    stored_slots: IdArray
    loaded_slots: IdArray


class Rig:
    """A device, its kernels, and memory for the largest geometry of a plan, taken once.

    Args:
        plan: what will be run.
        seed: of contents and of where blocks lie.
    """

    def __init__(self, device: Device, kernels: MoveKernels, plan: Plan, seed: int) -> None:
        self.device = device
        self.kernels = kernels
        self._rng = np.random.default_rng(seed)
        largest = max(*plan.totals, plan.verified_total, plan.decode_total, *plan.sweep_totals)
        self._cache_bytes = SPARE * largest
        self._host_bytes = 2 * largest
        self._cache = device.allocate(self._cache_bytes)
        self._host = device.allocate_pinned(self._host_bytes)
        self._stream = device.create_stream()
        self._randomise(self._cache, self._cache_bytes)
        self._randomise(self._host, self._host_bytes)

    def site(self, geometry: Geometry) -> Site:
        """Cuts a geometry from the memory. Sites overlap: use one at a time."""
        blocks = SPARE * geometry.blocks
        size = blocks * geometry.fragment_bytes
        regions = [
            Region(self._cache + i * size, blocks, geometry.fragment_bytes, geometry.fragment_bytes)
            for i in range(geometry.tensors)
        ]
        layout = BlockLayout(tuple(regions))
        pool = HostPool([Slab(self._host, 2 * geometry.blocks * layout.block_bytes)], layout.block_bytes)
        ids = self._rng.permutation(blocks).astype(np.int32)
        slots = np.arange(2 * geometry.blocks, dtype=np.int32)
        n = geometry.blocks
        return Site(geometry, layout, pool, ids[:n], ids[n : 2 * n], slots[:n], slots[n:])

    def mover(self, layout: BlockLayout, settings: SwapSettings) -> KernelMover:
        """Our kernels for a layout; to be closed."""
        return KernelMover(self.device, layout, self.kernels, thread_blocks=settings.thread_blocks)

    def large_copy(self, site: Site, *, store: bool, stream: Stream) -> None:
        """As many bytes as a transfer of the site, as one copy."""
        size = site.geometry.blocks * site.layout.block_bytes
        if store:
            self.device.copy(self._host, self._cache, size, stream)
        else:
            self.device.copy(self._cache + size, self._host + size, size, stream)

    def fill(self, site: Site) -> None:
        """New bytes in the site's cache and slots, no two words alike, so that nothing moved wrongly can look right."""
        geometry = site.geometry
        self._randomise(self._cache, SPARE * geometry.blocks * site.layout.payload_bytes)
        self._randomise(self._host, 2 * geometry.blocks * site.layout.block_bytes)

    def cache_bytes(self, site: Site) -> Bytes:
        """All fragments of the site, shape (tensors, blocks, fragment bytes)."""
        geometry = site.geometry
        shape = (geometry.tensors, SPARE * geometry.blocks, geometry.fragment_bytes)
        return self._read(self._cache, math.prod(shape)).reshape(shape)

    def slot_bytes(self, site: Site) -> Bytes:
        """All slots of the site, shape (slots, tensors, fragment bytes)."""
        geometry = site.geometry
        shape = (2 * geometry.blocks, geometry.tensors, geometry.fragment_bytes)
        return self._read(self._host, math.prod(shape)).reshape(shape)

    def close(self) -> None:
        """Gives the memory back."""
        self.device.synchronize_stream(self._stream)
        self.device.destroy_stream(self._stream)
        self.device.free(self._cache)
        self.device.free_pinned(self._host)

    def _randomise(self, address: int, size: int) -> None:
        """A random odd step from a random start: as fast as memory, never repeating, never zeros for long."""
        start, step = self._rng.integers(0, 2**63, 2, dtype=np.uint64) | np.uint64(1)
        for offset in range(0, size, PIECE):
            words = np.arange(offset // 8, offset // 8 + min(PIECE, size - offset) // 8, dtype=np.uint64)
            self._write(address + offset, words * step + start)

    def _read(self, address: int, size: int) -> Bytes:
        data = np.empty(size, np.uint8)
        self._now(lambda: self.device.copy(data.ctypes.data, address, size, self._stream))
        return data

    def _write(self, address: int, data: npt.NDArray[np.uint64]) -> None:
        self._now(lambda: self.device.copy(address, data.ctypes.data, data.nbytes, self._stream))

    def _now(self, work: Callable[[], None]) -> None:
        work()
        self.device.synchronize_stream(self._stream)
