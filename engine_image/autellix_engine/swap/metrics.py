"""Our metrics beside vLLM's own ``vllm:kv_offload_*`` (bytes and seconds by direction, sizes of transfers, lookups)."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata, OffloadingMetricMetadata

from autellix_engine.swap.tier.programs import Standing
from autellix_engine.swap.tier.tier import HostTier

_PREFIX: Final = "autellix_engine_swap_"
TRANSFERS: Final = _PREFIX + "transfers"
EVICTED: Final = _PREFIX + "evicted_blocks"
FREED: Final = _PREFIX + "freed_blocks"
REFUSED: Final = _PREFIX + "refused_blocks"
FAILED: Final = _PREFIX + "failed_blocks"
CONTEXT: Final = _PREFIX + "context_tokens"
RESUMED: Final = _PREFIX + "resumed_tokens"
PREFETCHED: Final = _PREFIX + "prefetched_blocks"
POOL: Final = _PREFIX + "pool_blocks"
KEPT: Final = _PREFIX + "kept_blocks"

#: The tier's counts: metric and label.
_TIER_COUNTS: Final = {
    "evicted_ended": (EVICTED, "ended"),
    "evicted_idle": (EVICTED, "idle"),
    "evicted_active": (EVICTED, "active"),
    "freed_ended": (FREED, "ended"),
    "refused_room": (REFUSED, "no_room"),
    "refused_hole": (REFUSED, "after_a_hole"),
    "failed_stores": (FAILED, "store"),
    "failed_loads": (FAILED, "load"),
}


def definitions() -> dict[str, OffloadingMetricMetadata]:
    """All metrics that are reported here."""
    counter, gauge = OffloadingCounterMetadata, OffloadingGaugeMetadata
    found = "in the GPU's prefix cache, in host memory, or not at all: computed again"
    return {
        TRANSFERS: counter("Transfers that ended well, by direction and path.", ("direction", "path")),
        EVICTED: counter("Blocks that left the host pool for others, by what their program did.", ("program",)),
        FREED: counter("Blocks that left the host pool because their program ended.", ("program",)),
        REFUSED: counter("Blocks that were not stored, by reason.", ("reason",)),
        FAILED: counter("Blocks whose transfer failed.", ("direction",)),
        CONTEXT: counter(f"Tokens that a program's next call shares with the one before, found {found}.", ("found",)),
        RESUMED: counter(f"Tokens that a call had computed when it was preempted, found {found}.", ("found",)),
        PREFETCHED: counter("Blocks brought back to the GPU ahead of a call.", ()),
        POOL: gauge("Slots of the host pool, by state.", ("state",)),
        KEPT: gauge(
            "Blocks that programs keep in the host pool, by what the programs do; a shared one counts for each.",
            ("program",),
        ),
    }


class Reporter:
    """Turns counts that only grow into what vLLM wants: what was added since the last time."""

    def __init__(self, tier: HostTier) -> None:
        self._tier = tier
        self._reported: Counter[str] = Counter()
        self._added = OffloadingConnectorStats()

    def add(self, metric: str, amount: int, *labels: str) -> None:
        """Adds to a counter."""
        if amount:
            self._added.increase_counter(metric, amount, labels)

    def found(self, metric: str, known: int, gpu: int, host: int) -> None:
        """Of ``known`` tokens so many were found in either place; the rest is computed again."""
        gpu = min(known, gpu)
        host = min(known - gpu, host)
        self.add(metric, gpu, "gpu")
        self.add(metric, host, "host")
        self.add(metric, known - gpu - host, "computed_again")

    def take(self, *, gauges: bool) -> OffloadingConnectorStats | None:
        """What was added since the last call; ``gauges``: with the state of the pool, which is looked at block by
        block of no program but program by program."""
        for name, value in self._tier.counts.items():
            metric, label = _TIER_COUNTS[name]
            self.add(metric, value - self._reported[name], label)
            self._reported[name] = value
        if gauges:
            self._set(POOL, {"free": self._tier.free, "in_transfer": self._tier.in_transfer})
            held = self._tier.held()
            self._set(KEPT, {standing.name.lower(): held[standing] for standing in Standing})
        if self._added.is_empty():
            return None
        added, self._added = self._added, OffloadingConnectorStats()
        return added

    def _set(self, metric: str, values: Mapping[str, int]) -> None:
        for label, value in values.items():
            self._added.set_gauge(metric, value, (label,))
