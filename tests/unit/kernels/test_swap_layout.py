"""Layouts, plans, settings, hazards: pure decisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_kernels.errors import LayoutError, SettingError
from autellix_kernels.hazards import Conflicts, HazardLedger
from autellix_kernels.layout import BlockLayout, Region
from autellix_kernels.plan import Direction, Path, choose_path, chunks
from autellix_kernels.settings import SwapSettings

small_regions = st.builds(
    lambda base, blocks, fragment, gap: Region(base, blocks, fragment + gap, fragment),
    st.integers(1, 60),
    st.integers(1, 6),
    st.integers(1, 8),
    st.integers(0, 12),
)


def bytes_of(region: Region) -> set[int]:
    starts = range(region.base, region.base + region.blocks * region.block_stride, region.block_stride)
    return {start + i for start in starts for i in range(region.fragment_bytes)}


@given(small_regions, small_regions)
def test_regions_that_share_a_byte_are_always_refused(one: Region, other: Region) -> None:
    if bytes_of(one) & bytes_of(other):
        assert one.overlaps(other)
        assert other.overlaps(one)


@given(small_regions, st.integers(1, 60), st.integers(1, 8))
def test_interleaved_regions_of_full_extent_are_refused_only_when_they_share_a_byte(
    region: Region, base: int, fragment: int
) -> None:
    if fragment > region.block_stride or region.blocks < 6:
        return
    other = Region(base, region.blocks, region.block_stride, fragment)
    if abs(other.base - region.base) < region.block_stride:
        assert region.overlaps(other) == bool(bytes_of(region) & bytes_of(other))


def test_keys_and_values_in_one_tensor_are_two_regions() -> None:
    layout = BlockLayout((Region(4096, 10, 200, 100), Region(4196, 10, 200, 100)))
    assert layout.staging_offsets == (0, 112)
    assert layout.block_bytes == 224
    assert layout.payload_bytes == 200
    np.testing.assert_array_equal(layout.fragment_addresses(np.array([2], np.int32)), [[4496, 4596]])
    np.testing.assert_array_equal(layout.staged_addresses(np.array([1000], np.uint64)), [[1000, 1112]])


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ((), "at least one region"),
        ((Region(64, 2, 16, 16), Region(256, 3, 16, 16)), "same number of blocks"),
        ((Region(64, 4, 16, 16), Region(96, 4, 16, 16)), "regions overlap"),
    ],
)
def test_layouts_that_cannot_be_are_refused(regions: tuple[Region, ...], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        BlockLayout(regions)


@pytest.mark.parametrize(
    "values", [(0, 1, 16, 16), (64, 0, 16, 16), (64, 1, 16, 0), (64, 1, 15, 16), (2**64 - 8, 1, 16, 16)]
)
def test_regions_that_cannot_be_are_refused(values: tuple[int, int, int, int]) -> None:
    with pytest.raises(LayoutError, match=r"must be positive|beyond the address space"):
        Region(*values)


@given(st.integers(0, 5000), st.integers(1, 100))
def test_chunks_cover_everything_once_and_are_equal_to_within_one(blocks: int, most: int) -> None:
    cut = list(chunks(blocks, most))
    assert [i for part in cut for i in range(part.start, part.stop)] == list(range(blocks))
    sizes = [part.stop - part.start for part in cut]
    assert all(0 < size <= most for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert len(cut) == -(-blocks // most)


@pytest.mark.parametrize(
    ("fragment", "tensors", "blocks", "batched_copy", "path"),
    [
        (8 << 10, 64, 100, True, Path.GATHER),
        (64 << 10, 64, 100, True, Path.BATCH),  # large fragments
        (8 << 10, 21, 3, True, Path.BATCH),  # 63 fragments
        (8 << 10, 32, 2, True, Path.GATHER),  # 64 fragments
        (64 << 10, 64, 100, False, Path.GATHER),  # no batched copy
    ],
)
def test_the_path_follows_size_and_number_of_fragments(
    fragment: int, tensors: int, blocks: int, batched_copy: bool, path: Path
) -> None:
    layout = BlockLayout(tuple(Region(1 + (i << 40), 128, fragment, fragment) for i in range(tensors)))
    assert choose_path(layout, blocks, SwapSettings(), batched_copy=batched_copy) is path


@pytest.mark.parametrize(
    "change", [{"staging_slabs": 1}, {"staging_bytes": 0}, {"thread_blocks": 0}, {"gather_below_bytes": -1}]
)
def test_settings_that_cannot_work_are_named(change: dict[str, int]) -> None:
    name, value = next(iter(change.items()))
    with pytest.raises(SettingError, match=f"{name}: {value} is not allowed, must be"):
        SwapSettings(**change)


def test_a_transfer_waits_for_the_last_of_the_other_direction_on_each_block_and_slot() -> None:
    ledger = HazardLedger(blocks=8, slots=8)

    def enter(direction: Direction, number: int, blocks: list[int], slots: list[int], oldest: int = 1) -> Conflicts:
        return ledger.enter(direction, number, np.array(blocks, np.int32), np.array(slots, np.int32), oldest)

    assert enter(Direction.STORE, 1, [0, 1], [0, 1]) == Conflicts((), ())
    assert enter(Direction.STORE, 2, [1, 2], [2, 3]) == Conflicts((), ())
    assert enter(Direction.LOAD, 3, [1, 2, 7], [0, 3, 7]) == Conflicts(blocks=(2,), slots=(1, 2))
    assert enter(Direction.LOAD, 4, [0], [0], oldest=2) == Conflicts((), ())  # store 1 has ended
    assert enter(Direction.STORE, 5, [7], [0]) == Conflicts(blocks=(3,), slots=(4,))
