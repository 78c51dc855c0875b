"""The pipeline on a device that runs streams in random order: what events do not forbid, happens."""

import inspect
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autellix_kernels import engine as engine_module
from autellix_kernels.device import Event, Stream
from autellix_kernels.engine import SwapEngine
from autellix_kernels.errors import DriverError, LayoutError, SwapError
from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import AddressArray
from autellix_kernels.plan import Direction
from autellix_kernels.plan import Path as TransferPath
from autellix_kernels.pool import HostPool
from support.swap_model import SETTINGS, Traffic

WAITS = [
    number
    for number, line in enumerate(inspect.getsource(engine_module).splitlines(), start=1)
    if "self._device.wait(" in line
]
"""Every place where the engine makes a stream wait."""


class ForgetfulDevice(HostDevice):
    """Leaves out the waits that one line of the engine asks for."""

    def __init__(self, order: random.Random | None, line: int) -> None:
        super().__init__(order)
        self._line = line

    def wait(self, stream: Stream, event: Event) -> None:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        if frame.f_back.f_lineno != self._line:
            super().wait(stream, event)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_random_traffic_in_random_order_leaves_the_bytes_of_the_order_of_submission(
    host_library: Path, seed: int
) -> None:
    traffic = Traffic(host_library, seed)
    traffic.run(steps=30)
    traffic.check()


def slow_batched_store(library: Path, device: HostDevice) -> Traffic:
    """A batched store of a block takes long; a gather of the same block passes it; a load overwrites the block."""
    traffic = Traffic(library, 1, device, blocks_per_slab=12)
    streams: list[Stream] = []
    original = device.copy_batch

    def copy_batch(to: AddressArray, source: AddressArray, sizes: AddressArray, stream: Stream) -> None:
        if not streams:
            streams.append(stream)
            device.stall(stream)
        original(to, source, sizes, stream)

    device.copy_batch = copy_batch  # type: ignore[method-assign]
    traffic.store_into([0], [40])
    traffic.store_into(range(10), range(10))
    traffic.load_from([47], [0])
    device.resume(streams[0])
    traffic.finish()
    return traffic


def test_a_load_does_not_overwrite_what_a_slow_batched_store_still_reads(host_library: Path) -> None:
    slow_batched_store(host_library, HostDevice()).check()


def test_there_are_ten_waits_and_each_is_needed() -> None:
    assert len(WAITS) == 10


@pytest.mark.parametrize("line", WAITS)
def test_without_any_one_of_its_waits_the_engine_moves_wrong_bytes(host_library: Path, line: int) -> None:
    def attempts() -> Iterator[Traffic]:
        yield slow_batched_store(host_library, ForgetfulDevice(None, line))
        for seed in range(200):
            traffic = Traffic(host_library, seed, ForgetfulDevice(random.Random(seed), line))
            traffic.run(steps=30)
            yield traffic

    for traffic in attempts():
        try:
            traffic.check()
        except AssertionError:
            return
    pytest.fail("nothing went wrong: the wait is not needed, or this test does not reach it")


def test_a_contiguous_transfer_is_one_bus_copy_per_slab(host_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic(host_library, 1, HostDevice(), blocks_per_slab=3)
    sizes: list[int] = []
    original = traffic.device.copy

    def copy(to: int, source: int, size: int, stream: Stream) -> None:
        sizes.append(size)
        original(to, source, size, stream)

    monkeypatch.setattr(traffic.device, "copy", copy)
    transfer = traffic.engine.store(range(8), range(8), after=traffic.model)
    assert transfer.path is TransferPath.GATHER
    assert sizes == [blocks * traffic.cache.layout.block_bytes for blocks in (2, 3, 3)]


def test_what_finished_is_counted_by_direction_and_path(host_library: Path) -> None:
    traffic = Traffic(host_library, 2, HostDevice())
    engine, payload = traffic.engine, traffic.cache.layout.payload_bytes
    engine.store(range(10), range(10), after=traffic.model)
    engine.store([1, 2], [1, 2], after=traffic.model)
    engine.load([3], [3], after=traffic.model)
    assert engine.in_flight == 3
    assert [done.transfer.number for done in engine.finished()] == [1, 2, 3]
    stats = engine.stats()
    assert stats.size == {Direction.STORE: 12 * payload, Direction.LOAD: payload}
    assert stats.transfers[Direction.STORE, TransferPath.GATHER] == 1
    assert stats.transfers[Direction.STORE, TransferPath.BATCH] == 1
    assert stats.transfers[Direction.LOAD, TransferPath.BATCH] == 1
    assert stats.seconds[Direction.STORE] >= 0
    assert stats.mover == "nvrtc"
    assert engine.in_flight == 0


@pytest.mark.parametrize(
    ("blocks", "slots", "message"),
    [
        ([0, 24], [0, 1], r"blocks: 24 is outside of \[0, 24\)"),
        ([0, 1], [-1, 1], r"slots: -1 is outside of \[0, 48\)"),
        ([5, 5], [0, 1], "blocks: 5 comes twice"),
        ([5, 6], [7, 7], "slots: 7 comes twice"),
        ([5, 6], [7], "2 blocks do not match 1 slots"),
    ],
)
def test_transfers_that_do_not_fit_are_refused_before_anything_is_submitted(
    host_library: Path, blocks: list[int], slots: list[int], message: str
) -> None:
    traffic = Traffic(host_library, 3, HostDevice())
    with pytest.raises(LayoutError, match=message):
        traffic.engine.store(blocks, slots, after=traffic.model)
    with pytest.raises(LayoutError, match=message):
        traffic.engine.load(slots, blocks, after=traffic.model)
    assert traffic.engine.in_flight == 0
    traffic.run(steps=10)
    traffic.check()


def test_a_pool_of_another_slot_size_is_refused(host_library: Path) -> None:
    traffic = Traffic(host_library, 4)
    pool = HostPool(traffic.slabs, 64)
    with pytest.raises(LayoutError, match="slots of 64 bytes do not fit"):
        SwapEngine(traffic.device, traffic.cache.layout, pool, traffic.mover, SETTINGS)


@pytest.mark.parametrize("call", ["copy", "launch", "passed", "synchronize"])
def test_after_an_error_of_the_device_the_engine_refuses_to_go_on(
    host_library: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(host_library, 5, HostDevice())

    def fail(*_: object) -> None:
        raise DriverError(call, 700, "an illegal memory access was encountered")

    monkeypatch.setattr(traffic.device, call, fail)

    def use() -> None:
        transfer = traffic.engine.store(range(10), range(10), after=traffic.model)
        traffic.engine.wait([transfer.number])
        traffic.engine.finished()

    with pytest.raises(DriverError, match="700"):
        use()
    monkeypatch.undo()
    for again in (use, traffic.engine.finished):
        with pytest.raises(SwapError, match=r"unusable since an error of the device: .*illegal memory access"):
            again()


def test_closing_waits_for_what_is_in_flight_and_gives_everything_back(host_library: Path) -> None:
    traffic = Traffic(host_library, 6)
    at_first = traffic.device.live_objects
    engine = SwapEngine(traffic.device, traffic.cache.layout, traffic.pool, traffic.mover, SETTINGS)
    engine.store(range(10), range(10), after=traffic.model)
    engine.close()
    assert traffic.device.live_objects == at_first
    expected = traffic.cache.gathered(traffic.cache.snapshot(), np.arange(10, dtype=np.int32), traffic.slots(range(10)))
    np.testing.assert_array_equal(traffic.slots(range(10)), expected)


def test_a_driver_without_batched_copy_gathers_everything(host_library: Path) -> None:
    traffic = Traffic(host_library, 7, HostDevice(batched_copy=False))
    assert traffic.engine.store([1], [1], after=traffic.model).path is TransferPath.GATHER
