"""What vLLM's offloading connector loads: makes the manager for its scheduler and the worker for each device."""

import time
from collections.abc import Callable
from typing import Any, ClassVar

from vllm.v1.kv_offload.base import CanonicalKVCaches, OffloadingMetricMetadata, OffloadingSpec
from vllm.v1.kv_offload.config import OffloadingConfig

from autellix_engine.swap import metrics
from autellix_engine.swap.devices import open_engine
from autellix_engine.swap.handover import swap_settings
from autellix_engine.swap.manager import SwapManager
from autellix_engine.swap.settings import SIZE_SETTING, InvalidSwapSettings
from autellix_engine.swap.tier.tier import HostTier
from autellix_engine.swap.worker import SwapWorker
from autellix_kernels.host.device import HostDevice


class SwapSpec(OffloadingSpec):  # type: ignore[misc]  # vLLM is untyped to us
    """See the module's text. Raises InvalidSwapSettings when this model or size cannot be served."""

    make_host_device: ClassVar[Callable[[], HostDevice]] = HostDevice
    """The stand-in for a device where the model runs on a CPU."""

    def __init__(self, config: OffloadingConfig) -> None:
        super().__init__(config)
        self.settings = swap_settings(config.extra_config)
        if len(config.groups) != 1:
            raise InvalidSwapSettings(
                f"{SIZE_SETTING}: this model has {len(config.groups)} groups of KV cache, "
                "swapping works for models with one; set it to 0"
            )
        size = self.settings.size_bytes(0)
        self.block_bytes = config.worker_kv_bytes_per_block
        self.slots = size // config.parallel.world_size // self.block_bytes
        if self.slots < 1:
            raise InvalidSwapSettings(
                f"{SIZE_SETTING}: {size} bytes do not hold a block of {self.block_bytes} bytes "
                f"for each of {config.parallel.world_size} devices"
            )

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, OffloadingMetricMetadata]:
        """Our metrics beside those of the connector."""
        return metrics.definitions()

    def get_manager(self) -> SwapManager:
        """The scheduler's side."""
        return SwapManager(
            HostTier(self.slots),
            tokens_per_block=self.tokens_per_block[0],
            block_bytes=self.block_bytes * self.config.parallel.world_size,
            bytes_per_step=self.settings.bytes_per_step,
            weighs_preemptions=self.settings.weigh_preemptions,
            clock=time.monotonic,
        )

    def get_worker(self, kv_caches: CanonicalKVCaches) -> SwapWorker:
        """The side of one device."""
        return SwapWorker(open_engine(kv_caches, self.slots, self.settings, type(self).make_host_device))
