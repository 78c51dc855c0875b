"""An in-process engine that swaps, with counts of what its scheduler hands out."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from prometheus_client import REGISTRY
from vllm.config import KVTransferConfig

from autellix_engine.swap.handover import transfer_config
from autellix_engine.swap.settings import SwapSettings
from autellix_engine.swap.spec import SwapSpec
from autellix_engine.swap.tier.tier import HostTier
from autellix_kernels.host.device import HostDevice
from autellix_wire.records import CallRecord
from support.in_process_engine import InProcessEngine
from support.scheduler_bench import RecordingPublisher

BLOCK = 32  # tokens


class SwapEngineBench(InProcessEngine):
    """An engine with the tiny model, whose transfers run on a device of the caller's.

    Args:
        make_host_device: makes the stand-in for a device; None: transfers run as soon as they may.
        settings: of swapping.
    """

    def __init__(
        self,
        *,
        slots: int,
        blocks: int,
        settings: SwapSettings,
        make_host_device: Callable[[], HostDevice] | None = None,
        **arguments: Any,
    ) -> None:
        self.device: HostDevice | None = None
        plain = SwapSpec.make_host_device

        def make() -> HostDevice:
            self.device = (make_host_device or plain)()
            return self.device

        _forget_metrics()
        SwapSpec.make_host_device = make
        try:
            super().__init__(
                slots=slots,
                blocks=blocks,
                # The bounds are so far apart that no call leaves its level, however slow the machine.
                scheduling={"queue_bounds_ms": [600_000, 6_000_000], "min_run_ms": 0, "max_preemptions_per_step": 4},
                kv_transfer_config=KVTransferConfig(**transfer_config(settings)),
                **arguments,
            )
        finally:
            SwapSpec.make_host_device = plain
        self.publisher = RecordingPublisher()
        self.scheduler.publisher = self.publisher
        self.scheduled: Counter[str] = Counter()
        """Tokens handed to the model, by our id of the request."""
        self._schedule = self.scheduler.schedule
        self.scheduler.schedule = self._counting

    @property
    def connector(self) -> Any:
        """The scheduler's side of the connector."""
        return self.scheduler.connector.host_tier

    @property
    def tier(self) -> HostTier:
        tier: HostTier = self.connector.manager.tier
        return tier

    @property
    def gpu_blocks_in_use(self) -> int:
        pool = self.scheduler.kv_cache_manager.block_pool
        return int(pool.num_gpu_blocks - 1 - pool.get_num_free_blocks())

    def record(self, call: str) -> CallRecord:
        return self.publisher.of(call)

    def forget_everything(self) -> None:
        """Empties the pool and the GPU's prefix cache; nothing may be in the engine."""
        self.settle()
        self.tier.clear()
        self.scheduler.reset_prefix_cache()
        self.scheduled.clear()
        self.outputs.clear()
        self.finish_reasons.clear()

    def settle(self) -> None:
        """Steps until no call, no transfer and no message about one is left."""
        for _ in range(3_000):
            if not (self._engine.has_unfinished_requests() or self.scheduler.has_requests()):
                return
            self.step()
        raise AssertionError("the engine does not come to rest")

    def check_rest(self) -> None:
        """Nothing is in use on the GPU or in a transfer, and the connector remembers no request."""
        self.settle()
        self.tier.check_integrity()
        assert self.tier.in_transfer == 0
        assert self.gpu_blocks_in_use == 0
        assert self.connector._req_status == {}
        assert self.connector._jobs == {}
        assert len(self.scheduler.core) == 0

    def _counting(self, *args: Any, **kwargs: Any) -> Any:
        output = self._schedule(*args, **kwargs)
        for request_id, tokens in output.num_scheduled_tokens.items():
            self.scheduled[request_id.rpartition("-")[0]] += tokens
        return output


def _forget_metrics() -> None:
    """Those of an earlier engine in this process; vLLM does the same with its own."""
    for collector in list(REGISTRY._collector_to_names):
        if getattr(collector, "_name", "").startswith("autellix_engine_swap_"):
            REGISTRY.unregister(collector)


def prompt(seed: str, length: int) -> list[int]:
    """Tokens that no prompt of another seed begins with."""
    rng = random.Random(seed)
    return [rng.randrange(10, 1_500) for _ in range(length)]
