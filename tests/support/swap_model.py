"""Random traffic on a swap engine beside a reference that does everything at once, in the order of submission."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from autellix_kernels.device import Stream
from autellix_kernels.engine import Ids, SwapEngine
from autellix_kernels.host import build
from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import IdArray
from autellix_kernels.mover import KernelMover, Mover
from autellix_kernels.pool import HostPool, Slab
from autellix_kernels.settings import SwapSettings
from autellix_kernels.transfers import Finished, Transfer
from support.swap_memory import Bytes, Cache, Shape, random_bytes

BLOCKS_PER_SLAB = (1, 3, 12)
"""Few, so that staging slabs go round many times; and so many that a transfer needs no second round."""

SHAPES = (Shape(48), Shape(32, gap=16), Shape(13, shift=3))
SETTINGS = SwapSettings(staging_bytes=4096, staging_slabs=2, thread_blocks=2, gather_from_fragments=12)
"""Transfers of fewer than four blocks go by batched copies, larger ones through staging."""


class Traffic:
    """A model that writes its cache, and stores and loads of random blocks; by default streams run in random order.

    Args:
        library: CPU build of the kernels.
        seed: of everything random.
        device: another device than a plain `HostDevice`.
        mover_of: makes another mover than the kernels.
        blocks_per_slab: by default one of `BLOCKS_PER_SLAB`.
    """

    def __init__(
        self,
        library: Path,
        seed: int,
        device: HostDevice | None = None,
        mover_of: "Callable[[Traffic], Mover] | None" = None,
        blocks_per_slab: int | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.device = device or HostDevice(random.Random(seed + 1))
        self.cache = Cache(self.device, SHAPES, 24, self.rng)
        layout = self.cache.layout
        slab_bytes = 16 * layout.block_bytes + 16
        self.slabs = [Slab(self.device.allocate_pinned(slab_bytes), slab_bytes) for _ in range(3)]
        self.pool = HostPool(self.slabs, layout.block_bytes)
        for slab in self.slabs:
            self.device.view(slab.address, slab.size)[:] = random_bytes(self.rng, slab.size)
        mover = (
            mover_of(self)
            if mover_of
            else KernelMover(self.device, layout, build.load(self.device, library), thread_blocks=2)
        )
        mover.max_blocks = blocks_per_slab or self.random.choice(BLOCKS_PER_SLAB)
        self.mover: Mover = mover
        self.engine = SwapEngine(self.device, layout, self.pool, mover, SETTINGS)
        self.model: Stream = self.device.create_stream()
        self.expected_cache = self.cache.snapshot()
        self.expected_slots = self.slots(range(self.pool.slots))
        self.submitted: list[Transfer] = []
        self.finished: list[Finished] = []

    def run(self, steps: int) -> None:
        """Random steps; then everything is waited for."""
        for _ in range(steps):
            self.random.choice((self.write, self.store, self.store, self.load, self.load, self.poll))()
        self.finish()

    def finish(self) -> None:
        """Waits for everything."""
        self.engine.wait({transfer.number for transfer in self.submitted})
        self.poll()
        self.device.synchronize_stream(self.model)

    def check(self) -> None:
        """Cache and pool hold what the reference holds, and every transfer was reported once, in order."""
        for buffer, wanted in zip(self.cache.buffers, self.expected_cache, strict=True):
            np.testing.assert_array_equal(buffer, wanted)
        actual = self.slots(range(self.pool.slots))
        for offset, region in zip(self.cache.layout.staging_offsets, self.cache.layout.regions, strict=True):
            part = slice(offset, offset + region.fragment_bytes)  # the padding between fragments means nothing
            np.testing.assert_array_equal(actual[:, part], self.expected_slots[:, part])
        assert sorted(done.transfer.number for done in self.finished) == [
            transfer.number for transfer in self.submitted
        ]

    def write(self) -> None:
        """The model computes: new bytes in some blocks, ordered after the transfers that touch them."""
        blocks = self._some(self.cache.layout.blocks)
        for transfer in self.submitted:
            self.engine.hold(self.model, transfer)
        for region in range(len(SHAPES)):
            fresh = random_bytes(self.rng, blocks.size * SHAPES[region].fragment_bytes).reshape(
                blocks.size, SHAPES[region].fragment_bytes
            )
            self.cache.fragments(self.expected_cache, region)[blocks] = fresh
            self.device.submit(self.model, self._writer(region, blocks, fresh))

    def store(self) -> None:
        """Some blocks into some slots."""
        self.store_into(*self._pairs())

    def store_into(self, blocks: Ids, slots: Ids) -> None:
        """These blocks into these slots."""
        self.submitted.append(self.engine.store(blocks, slots, after=self.model))
        ids, places = np.array(blocks, np.int32), np.array(slots, np.int32)
        self.expected_slots[places] = self.cache.gathered(self.expected_cache, ids, self.expected_slots[places])

    def load(self) -> None:
        """Some slots into some blocks."""
        blocks, slots = self._pairs()
        self.load_from(slots, blocks)

    def load_from(self, slots: Ids, blocks: Ids) -> None:
        """These slots into these blocks."""
        self.submitted.append(self.engine.load(slots, blocks, after=self.model))
        ids, places = np.array(blocks, np.int32), np.array(slots, np.int32)
        self.expected_cache = self.cache.scattered(self.expected_cache, ids, self.expected_slots[places])

    def poll(self) -> None:
        """Takes what has finished."""
        self.finished += self.engine.finished()

    def slots(self, slots: Sequence[int]) -> Bytes:
        """The bytes of slots as they are now, shape (slots, slot bytes)."""
        addresses = self.pool.addresses(np.array(slots, np.int32)).tolist()
        return np.stack([self.device.view(address, self.pool.slot_bytes) for address in addresses])

    def _writer(self, region: int, blocks: IdArray, fresh: Bytes) -> Callable[[], None]:
        def write() -> None:
            self.cache.fragments(self.cache.buffers, region)[blocks] = fresh

        return write

    def _pairs(self) -> tuple[IdArray, IdArray]:
        blocks = self._some(self.cache.layout.blocks)
        start = self.random.randrange(self.pool.slots - blocks.size + 1)
        contiguous = np.arange(start, start + blocks.size, dtype=np.int32)
        scattered = self.rng.permutation(self.pool.slots)[: blocks.size].astype(np.int32)
        return blocks, self.random.choice((contiguous, scattered))

    def _some(self, limit: int) -> IdArray:
        return self.rng.permutation(limit)[: self.random.choice((0, 1, 2, 3, 8, 12))].astype(np.int32)
