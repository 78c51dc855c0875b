"""An in-process engine that swaps, with counts of what its scheduler hands out."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import REGISTRY
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group

from autellix_engine.swap.handover import transfer_config
from autellix_engine.swap.metrics import CONTEXT, RESUMED, Reporter
from autellix_engine.swap.settings import SwapSettings
from autellix_engine.swap.spec import SwapSpec
from autellix_engine.swap.tier.tier import HostTier
from autellix_engine.swap.worker import SwapWorker
from autellix_kernels.plan import Direction
from autellix_wire.records import CallRecord
from support.in_process_engine import InProcessEngine
from support.model_free import ManualClock
from support.scheduler_bench import RecordingPublisher
from support.thread_device import ThreadDevice

BLOCK = 32  # tokens


class SwapEngineBench(InProcessEngine):
    """An engine with the tiny model, whose transfers run on threads beside it, and whose host tier has a clock that
    tests set."""

    def __init__(
        self,
        *,
        slots: int,
        blocks: int,
        settings: SwapSettings,
        **arguments: Any,
    ) -> None:
        self.thread_device = ThreadDevice(seed=7)
        plain = SwapSpec.make_host_device
        _forget_metrics()
        SwapSpec.make_host_device = lambda: self.thread_device
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
        self.clock = ManualClock()
        """Of the host tier: when programs left and are due does not depend on the machine."""
        self.connector.manager._clock = self.clock
        self.publisher = RecordingPublisher()
        self.scheduler.publisher = self.publisher
        self.scheduled: Counter[str] = Counter()
        """Tokens handed to the model, by our id of the request."""
        self._schedule = self.scheduler.schedule
        self.scheduler.schedule = self._counting
        self.found: Counter[tuple[str, str]] = Counter()
        """Tokens by metric (`CONTEXT`, `RESUMED`) and by where they were found."""
        self._watch_reporter()

    @property
    def connector(self) -> Any:
        """The scheduler's side of the connector."""
        return self.scheduler.connector.host_tier

    @property
    def tier(self) -> HostTier:
        tier: HostTier = self.connector.manager.tier
        return tier

    @property
    def connector_worker(self) -> Any:
        """The device's side of the connector."""
        return get_kv_transfer_group().connector_worker

    @property
    def worker(self) -> SwapWorker:
        """The side of the transfers."""
        worker: SwapWorker = self.connector_worker.worker
        return worker

    @contextmanager
    def held(self, *directions: Direction) -> Iterator[None]:
        """Transfers of these directions stand still meanwhile; by default all."""
        lanes = [self.worker._engine._lanes[direction] for direction in directions or Direction]
        queues = self.thread_device.queues
        queues.hold([stream for lane in lanes for stream in (lane.cache, lane.bus)])
        try:
            yield
        finally:
            queues.let_go()

    def resize_pool(self, slots: int) -> None:
        """An empty pool of another size, at most the one it started with; nothing may be in the engine."""
        self.settle()
        manager = self.connector.manager
        manager.tier = HostTier(slots)
        manager.reporter = Reporter(manager.tier)
        self._watch_reporter()

    def share_computed_again(self, metric: str) -> float:
        """Of the tokens that could have been found."""
        return self.found[metric, "computed_again"] / sum(
            self.found[metric, f] for f in ("gpu", "host", "computed_again")
        )

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
        self.found.clear()
        self.publisher.records.clear()
        self.outputs.clear()
        self.finish_reasons.clear()

    def check_rest(self) -> None:
        """Nothing is in use on the GPU or in a transfer, and the connector remembers no request."""
        self.settle()
        self.tier.check_integrity()
        assert self.tier.in_transfer == 0
        assert self.gpu_blocks_in_use == 0
        assert self.connector._req_status == {}
        assert self.connector._jobs == {}
        assert len(self.scheduler.core) == 0

    def _watch_reporter(self) -> None:
        reporter = self.connector.manager.reporter
        add = reporter.add

        def watched(metric: str, amount: int, *labels: str) -> None:
            if metric in (CONTEXT, RESUMED):
                self.found[metric, labels[0]] += amount
            add(metric, amount, *labels)

        reporter.add = watched

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
