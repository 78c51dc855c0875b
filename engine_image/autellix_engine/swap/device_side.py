"""The device's side of the connector: reports what failed instead of ending the engine."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    OffloadingWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker

from autellix_engine.swap.worker import SwapWorker


@dataclass
class SwapWorkerMetadata(OffloadingWorkerMetadata):  # type: ignore[misc]  # vLLM is untyped to us
    """What a device reports besides the ends of jobs."""

    failed_jobs: set[int] = field(default_factory=set)
    paths: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Finished transfers by direction and path."""

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "SwapWorkerMetadata":
        """Joins the reports of two devices."""
        joined = super().aggregate(other)
        return SwapWorkerMetadata(
            completed_jobs=joined.completed_jobs,
            transfer_stats=joined.transfer_stats,
            failed_jobs=self.failed_jobs | other.failed_jobs,
            paths=self.paths + other.paths,
        )


class SwapConnectorWorker(OffloadingConnectorWorker):  # type: ignore[misc]
    """Reports failed jobs instead of ending the engine: the blocks of a failed load are named to vLLM, which computes
    them again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._targets: dict[int, list[int]] = {}  # blocks that loads in flight write
        self._invalid_blocks: set[int] = set()
        self._connector_worker_meta = SwapWorkerMetadata()

    def start_kv_transfers(self, metadata: OffloadingConnectorMetadata) -> None:
        """See the base."""
        for job_id, job in metadata.load_jobs.items():
            self._targets[job_id] = job.dst_spec.block_ids.tolist()
        super().start_kv_transfers(metadata)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], set[str]]:
        """See the base."""
        worker: SwapWorker = self.worker
        report = self._connector_worker_meta
        loaded: set[str] = set()
        for result in worker.get_finished():
            targets = self._targets.pop(result.job_id, [])
            request_id = self._load_jobs.pop(result.job_id, None)
            if request_id:
                loaded.add(request_id)
            report.mark_completed(result.job_id)
            if result.success:
                stats = report.transfer_stats
                (stats.store if request_id is None else stats.load).record(result.transfer_size, result.transfer_time)
            else:
                report.failed_jobs.add(result.job_id)
                self._invalid_blocks.update(targets)
        report.paths += worker.take_paths()
        return set(), loaded

    def take_invalid_blocks(self) -> set[int]:
        """Blocks of the GPU whose load failed since the last call."""
        invalid, self._invalid_blocks = self._invalid_blocks, set()
        return invalid

    def build_connector_worker_meta(self) -> OffloadingWorkerMetadata | None:
        """See the base."""
        meta = super().build_connector_worker_meta()
        if meta is not None:
            self._connector_worker_meta = SwapWorkerMetadata()
        return meta
