"""Closed-loop programs like those of the paper's Mixed workload, small enough for a model that runs on a CPU.

Equal parts of conversations (ShareGPT), tool use (BFCL) and tree search (LATS), with the paper's calls per program and
its prefill and decode tokens per call divided by ``SCALE``. A program is a sequence of stages; the calls of a stage run
in parallel and the next stage begins when all have ended, so that a conversation is a chain and a search fans out.
"""

import math
import random
from dataclasses import dataclass
from typing import Final

#: Tokens of the paper to tokens here.
SCALE: Final = 16


@dataclass(frozen=True)
class CallShape:
    """Tokens that a call adds to its program's history as a prompt, and tokens that it generates."""

    prompt: int
    output: int


@dataclass(frozen=True)
class Program:
    """``arrival`` is in units of the mean time between two arrivals."""

    kind: str
    arrival: float
    stages: tuple[tuple[CallShape, ...], ...]

    @property
    def output(self) -> int:
        """Tokens that all calls generate."""
        return sum(call.output for stage in self.stages for call in stage)


@dataclass(frozen=True)
class Kind:
    """Programs of one kind: means from the paper, heavy tails by log-normal distributions around them."""

    name: str
    calls: float
    most_calls: int
    parallel: int
    prompt: float
    output: float

    def sample(self, arrival: float, rng: random.Random) -> Program:
        calls = min(self.most_calls, max(1, round(spread(self.calls, rng))))
        shapes = [CallShape(tokens(self.prompt, rng), tokens(self.output, rng)) for _ in range(calls)]
        stages = [tuple(shapes[i : i + self.parallel]) for i in range(0, calls, self.parallel)]
        return Program(self.name, arrival, tuple(stages))


#: Table of the paper's workloads: calls a program (mean and most), tokens a call (mean). Searches expand five branches.
KINDS: Final = (
    Kind("conversation", 6.66, 80, 1, 255.65, 276.81),
    Kind("tool use", 10.75, 70, 1, 735.06, 34.14),
    Kind("search", 159.71, 320, 5, 467.24, 72.64),
)


def spread(mean: float, rng: random.Random, sigma: float = 0.8) -> float:
    """A log-normal number with this mean."""
    return rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


def tokens(mean: float, rng: random.Random) -> int:
    """Tokens of a call, scaled."""
    return max(1, round(spread(mean / SCALE, rng)))


def mixed(count: int, seed: int) -> list[Program]:
    """So many programs, a third of each kind, that arrive as a Poisson process."""
    rng = random.Random(seed)
    kinds = [KINDS[i % len(KINDS)] for i in range(count)]
    rng.shuffle(kinds)
    arrival, programs = 0.0, []
    for kind in kinds:
        programs.append(kind.sample(arrival, rng))
        arrival += rng.expovariate(1.0)
    return programs
