"""vLLM's offloading connector with what it lacks: failures that are recomputed, programs, a bound on bytes per step.

The base classes track requests, jobs and fences; docs/swapping.md says which of their rules ours rely on, and tests
break them to see that it shows.
"""

import time

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

from autellix_engine.swap.device_side import SwapConnectorWorker
from autellix_engine.swap.prefetch import Prefetcher
from autellix_engine.swap.scheduler_side import SwapConnectorScheduler
from autellix_engine.swap.settings import InvalidSwapSettings
from autellix_engine.swap.spec import SwapSpec


class SwapConnector(OffloadingConnector):  # type: ignore[misc]
    """Makes the two sides; everything else is as in the base."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        # Not the base's own: it makes its own two sides.
        KVConnectorBase_V1.__init__(self, vllm_config, role, kv_cache_config)
        config = build_offloading_config(vllm_config, kv_cache_config)
        self._canonical_layout = config.canonical_layout
        spec: SwapSpec = OffloadingSpecFactory.create_spec(config)
        self._settings = spec.settings
        self.connector_scheduler: SwapConnectorScheduler | None = None
        self.connector_worker: SwapConnectorWorker | None = None
        if role is KVConnectorRole.SCHEDULER:
            self.connector_scheduler = SwapConnectorScheduler(spec, vllm_config, kv_cache_config)
        else:
            self.connector_worker = SwapConnectorWorker(spec, vllm_config, kv_cache_config)

    def bind_gpu_block_pool(self, gpu_block_pool: BlockPool) -> None:
        """See the base. Contexts can be brought back ahead of calls only into vLLM's prefix cache."""
        seconds = self._settings.prefetch_seconds
        if not seconds:
            return
        if not gpu_block_pool.enable_caching:
            raise InvalidSwapSettings("swap.prefetch_seconds: needs vLLM's prefix cache, which is off; set it to 0")
        self.host_tier.bind_prefetcher(
            Prefetcher(
                self.host_tier.manager,
                gpu_block_pool,
                seconds=seconds,
                share_percent=self._settings.prefetch_share_percent,
                clock=time.monotonic,
            )
        )

    @property
    def host_tier(self) -> SwapConnectorScheduler:
        """What our scheduler talks to (`HostTierPort`)."""
        scheduler: SwapConnectorScheduler = self.scheduler
        return scheduler

    def get_block_ids_with_load_errors(self) -> set[int]:
        """See the base."""
        return self.connector_worker.take_invalid_blocks() if self.connector_worker is not None else set()
