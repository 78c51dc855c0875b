"""What the manager of the host tier costs the scheduler, beside vLLM's own. Writes build/bench/swap.json.

    PYTHONPATH=bench python -m autellix_bench.swap [--repeat N]

No model and no bytes: a call of 10,000 tokens in blocks of 16 is looked up, its store and its load are planned, in
pools that are full, so that every store makes room first. CPU time of this process, medians; all pools in turn.
"""

import argparse
import itertools
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, OffloadingManager, OffloadKey, ReqContext
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from autellix_bench.goals import Goal, report_path, write
from autellix_engine.swap.manager import Expected, SwapManager
from autellix_engine.swap.tier.tier import HostTier

TOKENS_PER_BLOCK = 16
BLOCKS = 10_000 // TOKENS_PER_BLOCK
POOLS = (2_000, 20_000, 200_000)
#: Blocks of the programs that fill the pool: as many programs as fit.
OTHERS = 100
GOAL_MS = 1.0
#: Medians differ by a quarter between two runs on a shared machine; a cost that grew with the pool would be 100.
GOAL_GROWTH = 2.0

Timings = dict[str, float]


def ours(slots: int) -> OffloadingManager:
    """The manager under test; its clock stands still, so that programs leave in order of arrival."""
    return SwapManager(
        HostTier(slots),
        tokens_per_block=TOKENS_PER_BLOCK,
        block_bytes=1,
        bytes_per_step=1 << 60,
        weighs_preemptions=True,
        clock=itertools.count().__next__,
    )


def stock(slots: int) -> OffloadingManager:
    """vLLM's, with its default policy."""
    return CPUOffloadingManager(slots)


class Calls:
    """Calls of programs, one after another."""

    def __init__(self, manager: OffloadingManager) -> None:
        self._manager = manager
        self._numbers = itertools.count()

    def arrive(self, blocks: int) -> tuple[ReqContext, list[OffloadKey]]:
        """A call of a new program, and its blocks."""
        request = f"request {next(self._numbers)}"
        if isinstance(self._manager, SwapManager):
            self._manager.expect(request, Expected(program=f"program of {request}", level=0, transient=False))
        context = ReqContext(request)
        self._manager.on_new_request(context)
        keys = [OffloadKey(secrets.token_bytes(36)) for _ in range(blocks)]
        for place, key in enumerate(keys):
            context.set_offload_key_position(key, (place + 1) * TOKENS_PER_BLOCK)
        return context, keys

    def visit(self, blocks: int) -> None:
        """A whole call."""
        context, keys = self.arrive(blocks)
        self._manager.prepare_store(keys, context)
        self._manager.complete_store(keys, context)
        self._manager.on_request_finished(context)


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds of CPU time."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1e6


class Measured:
    """A manager whose pool is full, and what its steps took."""

    def __init__(self, manager: OffloadingManager, slots: int) -> None:
        self._manager = manager
        self._calls = Calls(manager)
        self._samples: dict[str, list[float]] = {"store plan": [], "lookup": [], "load plan": []}
        for _ in range(slots // OTHERS):
            self._calls.visit(OTHERS)

    def visit(self) -> None:
        """One more call."""
        manager, samples = self._manager, self._samples
        context, keys = self._calls.arrive(BLOCKS)
        planned: list[Any] = []
        samples["store plan"].append(timed(lambda: planned.append(manager.prepare_store(keys, context))))
        if len(planned[0].keys_to_store) != BLOCKS:
            raise RuntimeError(f"only {len(planned[0].keys_to_store)} blocks found room")
        manager.complete_store(keys, context)
        found: list[LookupResult] = []
        samples["lookup"].append(timed(lambda: found.extend(manager.lookup(key, context) for key in keys)))
        if set(found) != {LookupResult.HIT}:
            raise RuntimeError("blocks are missing")
        samples["load plan"].append(timed(lambda: manager.prepare_load(keys, context)))
        manager.complete_load(keys, context)
        manager.on_request_finished(context)

    def medians(self) -> Timings:
        """Milliseconds by what was done."""
        return {name: statistics.median(values) for name, values in self._samples.items()}


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures the manager of the host tier.")
    parser.add_argument("--repeat", type=int, default=60)
    repeat: int = parser.parse_args().repeat
    mine = {slots: Measured(ours(slots), slots) for slots in POOLS}
    theirs = {slots: Measured(stock(slots), slots) for slots in POOLS}
    for _ in range(repeat):  # in turn, since the machine is faster at one time than at another
        for slots in POOLS:
            mine[slots].visit()
            theirs[slots].visit()
    medians = {slots: measured.medians() for slots, measured in mine.items()}
    reference = {slots: measured.medians() for slots, measured in theirs.items()}
    names = list(medians[POOLS[0]])
    sys.stdout.write(f"A call of {BLOCKS} blocks in a full pool, ms of CPU time (vLLM's own manager)\n")
    sys.stdout.write(f"{'slots':>10}" + "".join(f"{name:>22}" for name in names) + "\n")
    for slots in POOLS:
        cells = (f"{medians[slots][name]:.3f} ({reference[slots][name]:.3f})" for name in names)
        sys.stdout.write(f"{slots:>10}" + "".join(f"{cell:>22}" for cell in cells) + "\n")
    goals = [Goal(name, max(medians[slots][name] for slots in POOLS), GOAL_MS, " ms") for name in names]
    goals += [
        Goal(
            f"{name}, pool 100 times larger", medians[POOLS[-1]][name] / medians[POOLS[0]][name], GOAL_GROWTH, " times"
        )
        for name in names
    ]
    write(report_path("swap"), goals, {"ours_ms": medians, "vllm_ms": reference})
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
