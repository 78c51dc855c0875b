"""Brings a program's context back to the GPU before its next call is expected.

The blocks become what vLLM's prefix cache holds anyway: cached and free. The call finds them there, and whoever needs
the room before may take it. One program at a time, a share of the blocks that nobody uses at most, and never while
preempted calls wait or in a step that loads for a call: they need bus and blocks more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import TransferJob
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.kv_offload.base import GPULoadStoreSpec

from autellix_engine.swap import metrics
from autellix_engine.swap.manager import SwapManager
from autellix_engine.swap.tier.programs import Call, Key
from autellix_engine.swap.worker import SlotsSpec

#: Stands for the request of a job that has none.
NO_REQUEST: Final = ""


@dataclass(frozen=True)
class Flight:
    """A context on its way. ``held``: all its blocks on the GPU, in order; ``fetched``: those that are being loaded."""

    call: Call
    keys: list[Key]
    fetched: list[Any]
    held: list[Any]


class Prefetcher:
    """See the module's text. Times are seconds."""

    def __init__(
        self,
        manager: SwapManager,
        pool: BlockPool,
        *,
        seconds: float,
        share_percent: int,
        clock: Callable[[], float],
    ) -> None:
        self._manager = manager
        self._pool = pool
        self._seconds = seconds
        self._share_percent = share_percent
        self._clock = clock
        self._flight: Flight | None = None

    @property
    def busy(self) -> bool:
        """Whether a context is on its way."""
        return self._flight is not None

    def begin(self) -> TransferJob | None:
        """The next load, if a program is due soon whose context is not on the GPU; at most one is in flight."""
        if self._flight is not None:
            return None
        tier, now = self._manager.tier, self._clock()
        room = self._pool.get_num_free_blocks() * self._share_percent // 100
        for program in tier.due(now - self._seconds, now + self._seconds):
            program.brought_back = True
            keys = tier.context(program)[:room]
            cached = [self._pool.cached_block_hash_to_block.get_one_block(key) for key in keys]
            missing = [key for key, block in zip(keys, cached, strict=True) if block is None]
            if not missing or len(missing) > self._manager.blocks_per_step:
                continue
            self._pool.touch([block for block in cached if block is not None])  # or their room would be taken first
            fetched = self._pool.get_new_blocks(len(missing))
            rest = iter(fetched)
            call = Call(id=f"prefetch for {program.id}", program=program, level=0)
            slots = tier.plan_load(call, missing)
            self._flight = Flight(call, missing, fetched, [block or next(rest) for block in cached])
            target = GPULoadStoreSpec([block.block_id for block in fetched], [len(fetched)], [0])
            return TransferJob(NO_REQUEST, SlotsSpec(slots), target)
        return None

    def end(self, *, ok: bool) -> None:
        """The load has ended, on all devices."""
        if self._flight is None:
            raise LookupError("no context is on its way")
        flight, self._flight = self._flight, None
        self._manager.tier.loaded(flight.call, flight.keys, ok=ok)
        if ok:
            for key, block in zip(flight.keys, flight.fetched, strict=True):
                if self._pool.cached_block_hash_to_block.get_one_block(key) is None:  # nobody computed it meanwhile
                    self._pool._insert_block_hash(key, block, num_tokens=None)
            self._manager.reporter.add(metrics.PREFETCHED, len(flight.keys))
        self._pool.free_blocks(reversed(flight.held))  # the tail is evicted first
