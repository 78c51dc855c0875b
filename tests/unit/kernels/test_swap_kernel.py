"""The kernels, built for the CPU from the source that GPUs run, against numpy, byte for byte."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autellix_kernels import mover as mover_module
from autellix_kernels.errors import LayoutError
from autellix_kernels.host import build
from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import BlockLayout, Region
from autellix_kernels.mover import KernelMover, source_folder
from support.swap_memory import Cache, Shape, random_bytes

shapes = st.builds(
    Shape,
    fragment_bytes=st.one_of(
        st.integers(1, 100), st.integers(1, 80).map(lambda n: n * 16), st.integers(8000, 8400), st.just(33000)
    ),
    gap=st.one_of(st.just(0), st.integers(0, 64)),
    shift=st.one_of(st.just(0), st.integers(0, 15)),
)


class Bench:
    """A mover on a device where everything runs at once, a cache, and staging for some of its blocks."""

    def __init__(
        self, library: Path, cache_shapes: list[Shape], blocks: int, moved: int, seed: int, thread_blocks: int = 7
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.device = HostDevice()
        self.cache = Cache(self.device, cache_shapes, blocks, self.rng)
        self.mover = KernelMover(
            self.device, self.cache.layout, build.load(self.device, library), thread_blocks=thread_blocks
        )
        self.ids = self.rng.permutation(blocks)[:moved].astype(np.int32)
        self.stream = self.device.create_stream()
        block_bytes = self.cache.layout.block_bytes
        self.staging = self.device.allocate(max(moved, 1) * block_bytes)
        self.staged = self.device.view(self.staging, max(moved, 1) * block_bytes).reshape(-1, block_bytes)[:moved]
        self.staged[:] = random_bytes(self.rng, self.staged.size).reshape(self.staged.shape)

    def check_gather(self) -> None:
        before = self.cache.snapshot()
        expected = self.cache.gathered(before, self.ids, self.staged)
        self.mover.gather(self.ids, self.staging, self.stream)
        np.testing.assert_array_equal(self.staged, expected)
        for buffer, old in zip(self.cache.buffers, before, strict=True):
            np.testing.assert_array_equal(buffer, old)

    def check_scatter(self) -> None:
        staged_before = self.staged.copy()
        expected = self.cache.scattered(self.cache.snapshot(), self.ids, self.staged)
        self.mover.scatter(self.ids, self.staging, self.stream)
        for buffer, wanted in zip(self.cache.buffers, expected, strict=True):
            np.testing.assert_array_equal(buffer, wanted)
        np.testing.assert_array_equal(self.staged, staged_before)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cache_shapes=st.lists(shapes, min_size=1, max_size=5),
    blocks=st.integers(1, 40),
    part=st.floats(0, 1),
    thread_blocks=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_gather_and_scatter_equal_numpy_on_any_layout(
    host_library: Path, cache_shapes: list[Shape], blocks: int, part: float, thread_blocks: int, seed: int
) -> None:
    bench = Bench(host_library, cache_shapes, blocks, round(part * blocks), seed, thread_blocks)
    bench.check_gather()
    bench.check_scatter()


def test_a_hundred_thousand_fragments(host_library: Path) -> None:
    bench = Bench(host_library, [Shape(48)] * 125, blocks=1000, moved=800, seed=1)
    assert bench.ids.size * len(bench.cache.layout.regions) == 100_000
    bench.check_gather()
    bench.check_scatter()


@pytest.mark.parametrize("moved", [0, 1])
def test_no_block_and_one_block(host_library: Path, moved: int) -> None:
    bench = Bench(host_library, [Shape(8192)], blocks=3, moved=moved, seed=2)
    bench.check_gather()
    bench.check_scatter()


def test_fragments_of_megabytes_are_shared_by_many_thread_blocks(host_library: Path) -> None:
    bench = Bench(host_library, [Shape(2 << 20), Shape((1 << 20) + 5)], blocks=2, moved=2, seed=3)
    bench.check_gather()
    bench.check_scatter()


def test_staging_off_its_alignment_is_refused(host_library: Path) -> None:
    bench = Bench(host_library, [Shape(64)], blocks=4, moved=2, seed=4)
    with pytest.raises(LayoutError, match="staging"):
        bench.mover.gather(bench.ids, bench.staging + 8, bench.stream)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([0, 4], np.int32), "outside of"),
        (np.array([-1], np.int32), "outside of"),
        (np.array([1], np.int64), "int32"),
        (np.array([[1]], np.int32), "one-dimensional"),
        (np.arange(8, dtype=np.int32)[::4], "contiguous"),
        (np.zeros(961, np.int32), "at most 960"),
    ],
)
def test_ids_that_do_not_fit_are_refused(host_library: Path, ids: np.ndarray, message: str) -> None:
    bench = Bench(host_library, [Shape(64)], blocks=4, moved=2, seed=5)
    with pytest.raises(LayoutError, match=message):
        bench.mover.gather(ids, bench.staging, bench.stream)


def test_a_scatter_with_two_writers_of_one_block_is_refused(host_library: Path) -> None:
    bench = Bench(host_library, [Shape(64)], blocks=4, moved=2, seed=6)
    with pytest.raises(LayoutError, match="comes twice"):
        bench.mover.scatter(np.array([2, 2], np.int32), bench.staging, bench.stream)


def test_a_block_beyond_the_kernels_counters_is_refused(host_library: Path) -> None:
    device = HostDevice()
    huge = BlockLayout((Region(1 << 20, 1, 1 << 44, 1 << 44),))
    with pytest.raises(LayoutError, match="too large for one launch"):
        KernelMover(device, huge, build.load(device, host_library), thread_blocks=1)


def test_the_wrapper_and_the_source_agree_on_their_constants() -> None:
    source = (source_folder() / "block_move.cu").read_text()

    def constant(name: str) -> int:
        found = re.search(rf"constexpr int {name} = (\d+);", source)
        assert found, name
        return int(found[1])

    assert constant("kThreads") == mover_module.THREADS
    assert constant("kMaxBlocks") == mover_module.MAX_BLOCKS
    assert constant("kThreads") * constant("kWordsPerThread") * 16 == mover_module.TILE_BYTES
