"""What is computed again although it was computed before: by programs that come back, and by calls that were preempted.

    PYTHONPATH=tests:bench python -m autellix_bench.swap_share [--preemptions N]

vLLM runs a tiny model in this process, with transfers on threads beside it. Twelve live programs, three times what the
GPU's blocks hold, come back in turn to pools for all of their contexts and for less: in this order, a pool that kept
whoever came last would lose everything as soon as one context has no room. Then short calls preempt long ones at
random; each long call must end with the tokens of an undisturbed run. Tokens are counted, not times, so another machine
gives about the same. Writes build/bench/swap-share.json.
"""

import argparse
import itertools
import os
import sys
from dataclasses import asdict, dataclass
from typing import Final

os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}

from autellix_bench.goals import Goal, report_path, write
from autellix_engine.swap.metrics import RESUMED
from autellix_engine.swap.settings import SwapSettings
from support.swap_engine import SwapEngineBench
from support.swap_traffic import Storm, share_of_known_computed_again, visits

GPU_TOKENS: Final = 3_200
PROGRAMS: Final = 12
ROUNDS: Final = 5
FIRST, MORE, OUTPUT = 750, 40, 4
"""Tokens of a program's first prompt, of what each later prompt adds, and of each answer."""

LONGEST: Final = FIRST + ROUNDS * (MORE + OUTPUT) - MORE
"""Tokens of a program's context at the end."""

PERCENTS: Final = (100, 75, 50, 25)
"""Sizes of the pool in units of what all contexts need at the end."""


@dataclass(frozen=True)
class Setup:
    """``block_tokens``: size of a block; what a call has computed in its last, partly filled one is never stored."""

    block_tokens: int
    prefix_cache: bool

    def __str__(self) -> str:
        return f"blocks of {self.block_tokens}, {'with' if self.prefix_cache else 'without'} prefix cache"


@dataclass(frozen=True)
class Shares:
    """Shares of tokens that are computed again: of known contexts by size of the pool in percent, and of what
    preempted calls had computed."""

    known: dict[int, float]
    preempted: float
    preemptions: int
    compared: int
    """Preempted calls that ended, each as its undisturbed run did."""


SETUPS: Final = (Setup(32, True), Setup(32, False), Setup(128, True))
JUDGED: Final = SETUPS[:2]
"""The calls here are too short for the goals with blocks of 128 tokens, which are measured to show just that."""


def measure(setup: Setup, preemptions: int) -> Shares:
    """One engine, all sizes of its pool."""
    with SwapEngineBench(
        slots=2,
        blocks=GPU_TOKENS // setup.block_tokens,
        settings=SwapSettings(size="128Mi"),
        block_size=setup.block_tokens,
        enable_prefix_caching=setup.prefix_cache,
    ) as engine:
        largest = engine.tier.slots
        names = [f"live {i}" for i in range(PROGRAMS)]
        needed = PROGRAMS * -(-LONGEST // setup.block_tokens)
        known: dict[int, float] = {}
        for percent in PERCENTS:
            engine.resize_pool(needed * percent // 100)
            engine.forget_everything()
            made = visits(engine, names, rounds=ROUNDS, first=FIRST, more=MORE, output=OUTPUT)
            # Before anybody has come back nothing is known of when programs do.
            known[percent] = share_of_known_computed_again(engine, made[PROGRAMS:])
            engine.check_rest()
            _say(f"{setup}: pool for {percent} % of the contexts, {100 * known[percent]:.1f} % computed again")
        engine.resize_pool(largest)
        storm = Storm(engine, seed=1)
        storm.run(preemptions, lambda line: _say(f"{setup}: {line}"))
        engine.check_rest()
        return Shares(known, engine.share_computed_again(RESUMED), preemptions, storm.compared)


def judge(shares: dict[Setup, Shares]) -> list[Goal]:
    """The goals, each for the worst of the setups that it is for."""
    judged = [shares[setup] for setup in JUDGED]
    rise = max(each.known[less] - each.known[more] for each in judged for more, less in itertools.pairwise(PERCENTS))
    return [
        Goal("known context computed again, pool for all", 100 * max(each.known[100] for each in judged), 5.0, " %"),
        Goal("the same, largest rise from one size of the pool to the next", 100 * rise, 50.0, " points"),
        Goal("computed again by preempted calls", 100 * max(each.preempted for each in judged), 2.0, " %"),
    ]


def table(shares: dict[Setup, Shares]) -> str:
    """Shares in percent, a line for each setup."""
    lines = [f"{'computed again, %':<34}" + "".join(f"{f'pool {percent} %':>12}" for percent in PERCENTS)]
    lines[0] += f"{'preempted':>12}"
    for setup, each in shares.items():
        cells = [*(each.known[percent] for percent in PERCENTS), each.preempted]
        lines.append(f"{setup!s:<34}" + "".join(f"{100 * cell:>12.1f}" for cell in cells))
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures what programs and preempted calls compute again.")
    parser.add_argument("--preemptions", type=int, default=60, help="of each engine (default 60)")
    preemptions: int = parser.parse_args().preemptions
    shares = {setup: measure(setup, preemptions) for setup in SETUPS}
    _say(table(shares))
    goals = judge(shares)
    write(report_path("swap-share"), goals, [asdict(setup) | asdict(each) for setup, each in shares.items()])
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
