"""The worker's rules of order, on a model that computes on a stream of its own, as on a GPU: late, or after everything.

Each rule is shown twice: kept it gives the right bytes, broken it gives others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from vllm.v1.kv_offload.base import CanonicalKVCaches, CanonicalKVCacheTensor, GPULoadStoreSpec

from autellix_engine.swap.devices import open_engine
from autellix_engine.swap.settings import SwapSettings
from autellix_engine.swap.worker import SlotsSpec, SwapWorker
from autellix_kernels.device import Stream
from autellix_kernels.host.device import HostDevice
from autellix_kernels.plan import Direction

BLOCKS, BLOCK_BYTES = 8, 64


class LateModel:
    """Computes on a stream. A block is all of one value."""

    def __init__(self, device: HostDevice, blocks: torch.Tensor) -> None:
        self._device = device
        self._blocks = blocks
        self.stream = device.create_stream()
        self.seen: list[int] = []

    def current(self) -> Stream:
        return self.stream

    def settle(self) -> None:
        """Nobody waits: what the stream was told to wait for holds for all later work."""

    def write(self, block: int, value: int) -> None:
        self._device.submit(self.stream, lambda: self._blocks[block].fill_(value))

    def read(self, block: int) -> None:
        self._device.submit(self.stream, lambda: self.seen.extend(self._blocks[block].unique().tolist()))


class Bench:
    """A worker whose transfers run as soon as they may, unless something is late."""

    def __init__(self, settings: SwapSettings) -> None:
        self.device = HostDevice()
        self.blocks = torch.zeros((BLOCKS, BLOCK_BYTES), dtype=torch.uint8)
        caches = CanonicalKVCaches([CanonicalKVCacheTensor(self.blocks, BLOCK_BYTES)], [[]])
        opened = open_engine(caches, BLOCKS, settings, lambda: self.device)
        self.model = LateModel(self.device, self.blocks)
        self.engine = opened.engine
        self.worker = SwapWorker(replace(opened, model=self.model))
        self._jobs = 0

    def store(self, block: int, slot: int) -> int:
        self._jobs += 1
        assert self.worker.submit_store(self._jobs, _on_gpu(block), SlotsSpec([slot]))
        return self._jobs

    def load(self, slot: int, block: int) -> int:
        self._jobs += 1
        assert self.worker.submit_load(self._jobs, SlotsSpec([slot]), _on_gpu(block))
        return self._jobs

    def finished(self) -> list[int]:
        results = self.worker.get_finished()
        assert all(result.success for result in results)
        return [result.job_id for result in results]

    def fill_slot(self, slot: int, value: int) -> None:
        """By way of block 0."""
        self.model.write(0, value)
        self.store(0, slot)
        assert len(self.finished()) == 1

    def block(self, block: int) -> set[int]:
        return set(self.blocks[block].tolist())

    def slot(self, slot: int) -> set[int]:
        """By way of the last block."""
        self.load(slot, BLOCKS - 1)
        return self.block(BLOCKS - 1)

    @contextmanager
    def late(self, *streams: Stream) -> Iterator[None]:
        for stream in streams:
            self.device.stall(stream)
        yield
        for stream in streams:
            self.device.resume(stream)

    def streams(self, direction: Direction) -> tuple[Stream, Stream]:
        lane = self.engine._lanes[direction]
        return lane.cache, lane.bus


def _on_gpu(block: int) -> GPULoadStoreSpec:
    return GPULoadStoreSpec([block], [1], [0])


@pytest.fixture(params=[1, 64], ids=["gathered", "batched copy"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(SwapSettings(gather_from_fragments=request.param))
    yield made
    made.worker.shutdown()


@pytest.fixture(params=[False, True], ids=["kept", "broken"])
def broken(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def break_order_after_the_model(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers are ordered after a stream on which nothing ever is."""
    beside = bench.device.create_stream()
    monkeypatch.setattr(bench.model, "current", lambda: beside)


def test_rule_1_a_store_copies_what_the_model_was_given_to_compute_before(
    bench: Bench, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken:
        break_order_after_the_model(bench, monkeypatch)
    with bench.late(bench.model.stream):
        bench.model.write(3, 7)
        bench.store(3, slot=0)
    assert bench.slot(0) == ({0} if broken else {7})


def test_rule_2_a_block_that_is_waited_for_is_stored_before_the_model_has_it_for_something_else(
    bench: Bench, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken:
        monkeypatch.setattr(SwapWorker, "wait", lambda worker, job_ids: None)
    bench.model.write(3, 7)
    with bench.late(*bench.streams(Direction.STORE)):
        job = bench.store(3, slot=0)
        bench.worker.wait({job})
        bench.model.write(3, 9)
    assert bench.block(3) == {9}
    assert bench.slot(0) == ({9} if broken else {7})


def test_rule_2_a_load_into_a_block_that_is_still_stored_comes_after_it(bench: Bench) -> None:
    bench.fill_slot(1, 5)
    bench.model.write(3, 7)
    with bench.late(*bench.streams(Direction.STORE)):
        bench.store(3, slot=0)
        bench.load(1, block=3)
    assert bench.slot(0) == {7}
    assert bench.block(3) == {5}


@pytest.mark.parametrize("direction", Direction)
def test_rule_3_a_job_counts_as_finished_when_its_last_byte_has_arrived(bench: Bench, direction: Direction) -> None:
    bench.fill_slot(1, 5)
    with bench.late(*bench.streams(direction)):
        job = bench.store(3, slot=0) if direction is Direction.STORE else bench.load(1, block=3)
        assert bench.finished() == []
    assert bench.finished() == [job]
    assert bench.block(3) == ({0} if direction is Direction.STORE else {5})


def test_rule_4_a_load_overwrites_a_block_after_the_work_that_the_model_was_given_before(
    bench: Bench, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had the block until now may still read it, and may still write it."""
    bench.fill_slot(1, 5)
    bench.model.write(3, 7)
    if broken:
        break_order_after_the_model(bench, monkeypatch)
    with bench.late(bench.model.stream):
        bench.model.read(3)
        bench.model.write(3, 8)
        job = bench.load(1, block=3)
        assert bench.finished() == ([job] if broken else [])
    assert bench.model.seen == ([5] if broken else [7])
    assert bench.block(3) == ({8} if broken else {5})
