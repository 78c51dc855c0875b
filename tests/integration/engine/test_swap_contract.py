"""The private parts of vLLM's offloading connector that ours builds on."""

import inspect
from collections import Counter
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
    RequestGroupState,
    RequestOffloadState,
    TransferJobStatus,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.kv_offload.base import OffloadingManager, OffloadingWorker, make_offload_key

from autellix_engine.swap.device_side import SwapWorkerMetadata


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (OffloadingConnectorScheduler, "get_num_new_matched_tokens", "request num_computed_tokens max_num_new_tokens"),
        (OffloadingConnectorScheduler, "update_state_after_alloc", "request blocks num_external_tokens"),
        (OffloadingConnectorScheduler, "build_connector_meta", "scheduler_output"),
        (OffloadingConnectorScheduler, "update_connector_output", "connector_output"),
        (OffloadingConnectorScheduler, "request_finished", "request"),
        (OffloadingConnectorScheduler, "has_pending_push_work", ""),
        (OffloadingConnectorScheduler, "_generate_job_id", ""),
        (OffloadingConnectorWorker, "start_kv_transfers", "metadata"),
        (OffloadingConnectorWorker, "get_finished", "finished_req_ids"),
        (OffloadingConnectorWorker, "build_connector_worker_meta", ""),
        (OffloadingConnector, "get_block_ids_with_load_errors", ""),
        (OffloadingConnector, "bind_gpu_block_pool", "gpu_block_pool"),
        (BlockPool, "_insert_block_hash", "block_hash_with_group_id block num_tokens"),
        (BlockPool, "get_new_blocks", "num_blocks"),
        (BlockPool, "touch", "blocks"),
        (BlockPool, "free_blocks", "ordered_blocks"),
    ],
)
def test_methods_have_the_signatures_that_are_overridden_or_called(owner: Any, name: str, parameters: str) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == ["self", *parameters.split()]


def test_manager_and_worker_are_asked_exactly_what_ours_answer() -> None:
    assert OffloadingManager.__abstractmethods__ == {"lookup", "prepare_load", "prepare_store", "on_new_request"}
    assert OffloadingWorker.__abstractmethods__ == {"submit_store", "submit_load", "get_finished", "wait"}


def test_requests_and_jobs_have_the_attributes_that_are_used() -> None:
    assert {
        "num_locally_computed_tokens",
        "group_states",
        "req_context",
    } <= RequestOffloadState.__dataclass_fields__.keys()
    assert {"offload_keys", "next_stored_chunk_idx"} <= RequestGroupState.__dataclass_fields__.keys()
    assert {"keys", "is_store"} <= TransferJobStatus.__dataclass_fields__.keys()


def test_a_block_has_the_same_name_in_the_pool_and_in_the_prefix_cache() -> None:
    assert make_offload_key(b"a hash", 0) == make_block_hash_with_group_id(b"a hash", 0)


def test_the_base_does_what_ours_builds_on() -> None:
    """Lines of the base that behaviour depends on and that no signature shows."""
    meta = inspect.getsource(OffloadingConnectorScheduler.build_connector_meta)
    assert "self._current_batch_jobs_to_flush.update(req_status.transfer_jobs)" in meta, "stores of preempted requests"
    assert "self._block_id_to_pending_jobs[bid]" in meta, "stores from blocks that are given away"
    assert meta.index("on_schedule_end") < meta.index("_build_store_jobs"), "a step's budget begins before its stores"
    assert meta.index("_build_store_jobs") < meta.index("on_request_finished"), "the last store comes before the end"
    flush = inspect.getsource(OffloadingConnectorWorker.handle_preemptions)
    assert flush.index("submit_store") < flush.index("self.worker.wait"), (
        "they are submitted before they are waited for"
    )
    alloc = inspect.getsource(OffloadingConnectorScheduler.update_state_after_alloc)
    assert "OffloadPolicy.CHUNK_LEVEL" in alloc, "otherwise all blocks of a request are offered"


def test_reports_of_several_devices_join_and_one_failure_counts_for_all() -> None:
    one = SwapWorkerMetadata(completed_jobs={1: 1, 2: 1}, paths=Counter({("load", "gather"): 2}))
    other = SwapWorkerMetadata(completed_jobs={1: 1}, failed_jobs={1}, paths=Counter({("load", "gather"): 1}))
    joined = one.aggregate(other)
    assert joined.completed_jobs == {1: 2, 2: 1}
    assert joined.failed_jobs == {1}
    assert joined.paths == {("load", "gather"): 3}
