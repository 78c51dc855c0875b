"""The scheduler's side: what vLLM asks its offloading manager, answered by the host tier."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    LoadStoreSpec,
    LookupResult,
    OffloadingManager,
    OffloadKey,
    OffloadPolicy,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from autellix_engine.swap.metrics import Reporter
from autellix_engine.swap.tier.programs import Call
from autellix_engine.swap.tier.slots import Status
from autellix_engine.swap.tier.tier import HostTier
from autellix_engine.swap.worker import SlotsSpec

_RESULTS: Final = {
    Status.ABSENT: LookupResult.MISS,
    Status.PENDING: LookupResult.HIT_PENDING,
    Status.READY: LookupResult.HIT,
}
#: Least time between two reports of the pool's state.
_GAUGE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What the scheduler says of a call before vLLM tells the connector about it."""

    program: str
    level: int
    transient: bool


class SwapManager(OffloadingManager):  # type: ignore[misc]  # vLLM is untyped to us
    """Adapter of `HostTier`. ``block_bytes``: of one block on all devices together."""

    def __init__(
        self,
        tier: HostTier,
        *,
        tokens_per_block: int,
        block_bytes: int,
        bytes_per_step: int,
        weighs_preemptions: bool,
        clock: Callable[[], float],
    ) -> None:
        self.tier: Final = tier
        self.reporter: Final = Reporter(tier)
        self.block_bytes: Final = block_bytes
        self.blocks_per_step: Final = max(1, bytes_per_step // block_bytes)
        self.weighs_preemptions: Final = weighs_preemptions
        self.put_off: dict[str, int] = {}
        """By request: its block from which on it is to be asked again, since this step's bytes are used up."""
        self._tokens_per_block = tokens_per_block
        self._clock = clock
        self._budget = self.blocks_per_step
        self._expected: dict[str, Expected] = {}
        self._failed: set[OffloadKey] = set()
        self._gauges_at = float("-inf")

    def expect(self, request_id: str, expected: Expected) -> None:
        """Whose the request is that will come next under this id; without a word it is a program of its own."""
        self._expected[request_id] = expected

    def call(self, req_context: ReqContext) -> Call:
        """The request's call."""
        call: Call | None = req_context.get_state(Call)
        if call is None:
            raise LookupError(f"request {req_context.req_id} was not announced")
        return call

    def note_failure(self, keys: Collection[OffloadKey]) -> None:
        """A transfer of these blocks failed on a device; the end of its job follows."""
        self._failed.update(keys)

    # ---- what vLLM asks

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """See `OffloadingManager`. All blocks of a request are offered, also those it found: so a program keeps its
        whole context, not just what it computed itself."""
        own = Expected(f"call:{req_context.req_id}", level=0, transient=True)
        expected = self._expected.pop(req_context.req_id, own)
        req_context.set_state(
            self.tier.arrive(
                req_context.req_id,
                expected.program,
                self._clock(),
                level=expected.level,
                transient=expected.transient,
            )
        )
        return RequestOffloadingContext(policy=OffloadPolicy.REQUEST_LEVEL)

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """See `OffloadingManager`."""
        return _RESULTS[self.tier.status(key)]

    def get_load_source(self, key: OffloadKey, req_context: ReqContext) -> CacheHitSource:
        """See `OffloadingManager`."""
        return CacheHitSource.HOST

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> LoadStoreSpec:
        """See `OffloadingManager`."""
        return SlotsSpec(self.tier.plan_load(self.call(req_context), list(keys)))

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """See `OffloadingManager`."""
        self.tier.loaded(self.call(req_context), keys, ok=self._went_well(keys))

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput:
        """See `OffloadingManager`. What has no room is left out, from the tail."""
        blocks = list(keys)
        end = req_context.get_offload_key_position(blocks[0])
        if end is None:
            raise LookupError(f"request {req_context.req_id}: a block without a position")
        first = end // self._tokens_per_block - 1
        plan = self.tier.plan_store(self.call(req_context), first, blocks, self._clock(), self._budget)
        self._budget -= len(plan.keys)
        if plan.again_from is not None:
            self.put_off[req_context.req_id] = plan.again_from
        return PrepareStoreOutput(plan.keys, SlotsSpec(plan.slots), evicted_keys=[])

    def complete_store(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        """See `OffloadingManager`."""
        self.tier.stored(self.call(req_context), keys, ok=success and self._went_well(keys))

    def on_request_finished(self, req_context: ReqContext) -> None:
        """See `OffloadingManager`."""
        self.tier.leave(self.call(req_context), self._clock())

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """See `OffloadingManager`. Comes before this step's stores are planned."""
        self._budget = self.blocks_per_step

    def reset_cache(self) -> None:
        """See `OffloadingManager`."""
        self.tier.clear()

    def get_stats(self) -> OffloadingConnectorStats | None:
        """See `OffloadingManager`."""
        now = self._clock()
        gauges = now - self._gauges_at >= _GAUGE_SECONDS
        if gauges:
            self._gauges_at = now
        return self.reporter.take(gauges=gauges)

    def _went_well(self, keys: Collection[OffloadKey]) -> bool:
        if self._failed.isdisjoint(keys):
            return True
        self._failed.difference_update(keys)
        return False
