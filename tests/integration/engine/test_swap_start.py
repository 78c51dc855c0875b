"""The swap engine for a KV cache in this process's memory: what is refused at start, and where bytes go."""

from typing import Any

import pytest
import torch
from vllm.v1.kv_offload.base import CanonicalKVCaches, CanonicalKVCacheTensor, GPULoadStoreSpec
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)

from autellix_engine.swap.devices import open_engine
from autellix_engine.swap.handover import transfer_config
from autellix_engine.swap.settings import InvalidSwapSettings, SwapSettings
from autellix_engine.swap.spec import SwapSpec
from autellix_engine.swap.worker import SlotsSpec, SwapWorker
from autellix_kernels.errors import PinnedMemoryError

PAGE = 4_096
BLOCKS = 12


def kv_caches(tensors: int = 3) -> CanonicalKVCaches:
    """As vLLM hands them over; every byte says where it is."""
    made = []
    for index in range(tensors):
        tensor = torch.arange(BLOCKS, dtype=torch.int8).repeat_interleave(PAGE).view(BLOCKS, PAGE) + 16 * index
        made.append(CanonicalKVCacheTensor(tensor, PAGE))
    return CanonicalKVCaches(made, [[]])


def config(size: int, *, groups: int = 1, devices: int = 1, block_bytes: int = 3 * PAGE) -> OffloadingConfig:
    extra: Any = transfer_config(SwapSettings(size=size))["kv_connector_extra_config"]
    parallel: dict[str, Any] = dict.fromkeys(("pp_size", "pcp_size", "dcp_size", "data_parallel_size"), 1)
    return OffloadingConfig(
        groups=tuple(OffloadingGroupConfig(16, ("layer",), group) for group in range(groups)),
        worker_kv_bytes_per_block=block_bytes,
        enable_kv_cache_events=False,
        extra_config=extra,
        engine_id="engine",
        model=OffloadingModelConfig("model", "float32"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0,
            world_size=devices,
            tp_size=devices,
            data_parallel_index=0,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
            **parallel,
        ),
    )


def test_the_pool_is_shared_by_the_devices() -> None:
    assert SwapSpec(config(100 * 3 * PAGE)).slots == 100
    assert SwapSpec(config(100 * 3 * PAGE, devices=4)).slots == 25


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"size": 3 * PAGE - 1}, "swap.size: 12287 bytes do not hold a block of 12288 bytes for each of 1 devices"),
        ({"size": 3 * PAGE, "devices": 2}, "swap.size: 12288 bytes do not hold a block of 12288 bytes for each of 2"),
        ({"size": 1 << 30, "groups": 2}, "swap.size: this model has 2 groups of KV cache"),
    ],
)
def test_what_cannot_work_is_refused_by_the_name_of_the_setting(given: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidSwapSettings, match=f"^{said}"):
        SwapSpec(config(**given))


def test_a_pool_that_does_not_fit_this_machine_is_refused_before_it_is_taken() -> None:
    with pytest.raises(PinnedMemoryError, match=r"^swap\.size asks for .* GiB of pinned host memory, more than the"):
        open_engine(kv_caches(), (1 << 45) // (3 * PAGE), SwapSettings())


def test_blocks_go_out_and_come_back_to_other_blocks() -> None:
    caches = kv_caches()
    worker = SwapWorker(open_engine(caches, 7, SwapSettings()))
    before = [cache.tensor.clone() for cache in caches.tensors]
    assert worker.submit_store(1, GPULoadStoreSpec([3, 9, 4], [3], [0]), SlotsSpec([5, 0, 6]))
    worker.wait({1})
    for cache in caches.tensors:
        cache.tensor[[3, 9, 4]] = 127
    assert worker.submit_load(2, SlotsSpec([5, 0, 6]), GPULoadStoreSpec([1, 2, 11], [3], [0]))
    finished = {result.job_id: result for result in worker.get_finished()}
    assert {job: (result.success, result.transfer_size) for job, result in finished.items()} == {
        1: (True, 9 * PAGE),
        2: (True, 9 * PAGE),
    }
    for cache, old in zip(caches.tensors, before, strict=True):
        torch.testing.assert_close(cache.tensor[[1, 2, 11]], old[[3, 9, 4]])
        torch.testing.assert_close(cache.tensor[[0, 5, 6, 7, 8, 10]], old[[0, 5, 6, 7, 8, 10]])
    assert sum(worker.take_paths().values()) == 2
    worker.shutdown()
