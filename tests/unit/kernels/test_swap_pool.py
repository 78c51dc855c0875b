"""Pinned memory: taken at start or refused with a reason; slots and runs."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_kernels.errors import LayoutError, PinnedMemoryError
from autellix_kernels.host.device import HostDevice
from autellix_kernels.pool import HostPool, MemoryFacts, PinnedMemory, Slab, check_fits, memory_limit, read_memory_facts

PLENTY = MemoryFacts(available=1 << 40, container=None, locked=65536)


def test_memory_comes_in_equal_slabs_of_whole_pages_and_goes_back() -> None:
    device = HostDevice()
    memory = PinnedMemory(device, 5 << 20, setting="pool", facts=PLENTY, slab_bytes=2 << 20)
    assert [slab.size for slab in memory.slabs] == [(5 << 20) // 3 // 4096 * 4096] * 3
    assert device.live_objects == 3
    memory.close()
    assert device.live_objects == 0


def test_memory_that_runs_out_half_way_is_given_back_and_the_message_names_setting_and_limit() -> None:
    device = HostDevice(pinned_limit=3 << 20)
    with pytest.raises(PinnedMemoryError) as caught:
        PinnedMemory(device, 4 << 20, setting="engine.swap.size", facts=PLENTY, slab_bytes=1 << 20)
    message = str(caught.value)
    assert message.startswith("engine.swap.size asks for 0.00 GiB")
    assert "out of memory" in message
    assert "Limit of locked memory (ulimit -l): 65536 bytes" in message
    assert device.live_objects == 0


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            MemoryFacts(available=10 << 30, container=4 << 30, locked=None),
            r"left under the container's limit \(4.00 GiB\)",
        ),
        (MemoryFacts(available=4 << 30, container=10 << 30, locked=None), r"available on the machine \(4.00 GiB\)"),
    ],
)
def test_a_pool_that_would_wake_the_out_of_memory_killer_is_refused(facts: MemoryFacts, reason: str) -> None:
    with pytest.raises(PinnedMemoryError, match=f"swap asks for 5.00 GiB .* {reason}; lower swap"):
        check_fits(5 << 30, facts, "swap")
    check_fits(4 << 30, facts, "swap")


def test_a_size_below_a_page_is_refused() -> None:
    with pytest.raises(PinnedMemoryError, match="swap: 0 is not allowed, must be 4096 bytes or more"):
        PinnedMemory(HostDevice(), 0, setting="swap", facts=PLENTY)


@pytest.mark.parametrize(
    ("files", "rest"),
    [
        ({"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 500\ninactive_file 150\n"}, 450),
        ({"memory.max": "max\n"}, None),
        (
            {
                "memory/memory.limit_in_bytes": "1000\n",
                "memory/memory.usage_in_bytes": "900\n",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 50\n",
            },
            150,
        ),
        ({}, None),
    ],
    ids=["v2", "v2-unlimited", "v1", "none"],
)
def test_the_containers_limit_is_read_without_reclaimable_cache(
    tmp_path: Path, files: dict[str, str], rest: int | None
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  100 kB\nMemAvailable:  64 kB\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    facts = read_memory_facts(tmp_path)
    assert facts.available == 65536
    assert facts.container == rest


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "1000\n"}, 1_000),
        ({"memory.max": "max\n"}, 102_400),
        ({"memory/memory.limit_in_bytes": "2000\n"}, 2_000),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 102_400),
        ({}, 102_400),
    ],
    ids=["v2", "v2-unlimited", "v1", "v1-unlimited", "none"],
)
def test_the_limit_is_the_containers_or_the_machines(tmp_path: Path, files: dict[str, str], limit: int) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  100 kB\nMemAvailable:  64 kB\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_limit(tmp_path) == limit


def test_this_machines_limits_can_be_read() -> None:
    assert 0 < read_memory_facts().available <= memory_limit()


def test_slots_fill_slabs_and_never_straddle_two() -> None:
    pool = HostPool([Slab(1000, 100), Slab(5000, 100)], 48)
    assert pool.slots == 4
    np.testing.assert_array_equal(pool.addresses(np.arange(4, dtype=np.int32)), [1000, 1048, 5000, 5048])


def test_slabs_that_touch_are_still_copied_one_by_one() -> None:
    pool = HostPool([Slab(960, 96), Slab(1056, 96)], 48)
    runs = list(pool.runs(np.arange(4, dtype=np.int32)))
    assert [(run.first, run.count, run.address) for run in runs] == [(0, 2, 960), (2, 2, 1056)]


@given(st.lists(st.integers(0, 29), unique=True, max_size=30))
def test_runs_cover_the_slots_in_order_and_each_is_as_long_as_it_can_be(slots: list[int]) -> None:
    pool = HostPool([Slab(10_000 * (1 + i), 160) for i in range(3)], 16)
    ids = np.array(slots, np.int32)
    covered: list[int] = []
    for run in pool.runs(ids):
        assert run.first == len(covered)
        covered += [run.address + 16 * i for i in range(run.count)]
    assert covered == pool.addresses(ids).tolist()
    joins = sum(b == a + 1 and b // 10 == a // 10 for a, b in pairwise(slots))
    assert len(list(pool.runs(ids))) == len(slots) - joins


@pytest.mark.parametrize(
    ("slabs", "slot", "message"),
    [
        ([Slab(0, 64)], 24, "multiple of 16"),
        ([Slab(0, 64), Slab(64, 32)], 16, "of one size"),
        ([Slab(0, 64)], 80, "at least 80"),
        ([], 16, "of one size"),
    ],
)
def test_pools_that_cannot_be_are_refused(slabs: list[Slab], slot: int, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        HostPool(slabs, slot)
