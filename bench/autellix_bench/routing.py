"""How evenly several controller replicas load the engines. Writes build/bench/routing.json.

    PYTHONPATH=tests:tests/kubernetes:bench python -m autellix_bench.routing [--seconds S] [--policy NAME ...]

Real replicas over one real etcd; engines are HTTP servers that speak the OpenAI API and our record stream, and take an
exponential time for each call. Arrivals are a Poisson process, each call comes to a replica at random, so no replica
sees more than its share. For each policy: the mean load (calls at once) of the most loaded engine over that of all.
The exit status is 1 if a goal is missed.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from autellix_bench.goals import Goal, report_path, write
from autellix_controller.routing.policies import POLICIES
from support.etcd import running_etcd
from support.fake_engine import Call, FakeEngine, fake_engine
from support.fake_engine import answer as answer_at_once
from support.running_controller import Replica, running_controller

REPLICAS, ENGINES = 4, 8
GOAL = 1.2
#: The policy that the goal is for; the others are there to compare with.
JUDGED = "autellix"
#: Of one call, mean of an exponential distribution; an agent's turn is seldom shorter.
SERVICE_SECONDS = 1.0
#: Calls of one program, and the pause between two of them.
TURNS, PAUSE_SECONDS = 5, 0.5
#: Mean calls at once on an engine.
LOAD = 10.0
#: Between two load reports of an engine. A real one sends one every half second while it is busy.
REPORT_SECONDS = 0.5
SAMPLE_SECONDS = 0.05


class Figure(msgspec.Struct, frozen=True):
    """One policy's balance."""

    name: str
    value: float
    """Load of the most loaded engine over the mean of all, both averaged over time."""
    spread: float
    """Standard deviation of the engines' loads over their mean, at one moment, averaged over time."""
    calls: int


class Traffic:
    """Programs that come and go."""

    def __init__(self, replicas: list[Replica], chance: random.Random) -> None:
        self._replicas, self._chance = replicas, chance
        self._programs: set[asyncio.Task[None]] = set()
        self.calls = 0

    async def run(self, seconds: float) -> None:
        """New programs at a steady rate; those that are under way are ended with the run."""
        rate = LOAD * ENGINES / SERVICE_SECONDS / TURNS
        loop = asyncio.get_running_loop()
        ends, due = loop.time() + seconds, loop.time()
        while due < ends:
            await asyncio.sleep(max(0.0, due - loop.time()))
            task = asyncio.create_task(self._program(f"s-{self._chance.getrandbits(64)}"))
            self._programs.add(task)
            task.add_done_callback(self._programs.discard)
            due += self._chance.expovariate(rate)
        for task in self._programs:
            task.cancel()
        await asyncio.gather(*self._programs, return_exceptions=True)

    async def _program(self, session: str) -> None:
        for _ in range(TURNS):
            response, _ = await self._chance.choice(self._replicas).chat(session)
            if response.status != 200:
                raise RuntimeError(f"a call was answered with {response.status}")
            self.calls += 1
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_SECONDS))


async def sampled(engines: list[FakeEngine], samples: list[list[int]]) -> None:
    """Notes the calls on each engine, for ever."""
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        samples.append([engine.running for engine in engines])


async def measure(table: str, policy: str, seconds: float, seed: int) -> Figure:
    """One policy; the first fifth of the run is warm-up."""
    chance = random.Random(seed)

    async def serve(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        await asyncio.sleep(chance.expovariate(1 / SERVICE_SECONDS))
        return await answer_at_once(engine, request, call)

    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(fake_engine(f"engine-{number}")) for number in range(ENGINES)]
        for engine in engines:
            engine.script = serve
            engine.report_seconds = REPORT_SECONDS
        settings: dict[str, Any] = {
            "table": table,
            "table_prefix": f"/autellix/bench/{policy}-{seed}",
            "routing_policy": policy,
        }
        replicas = [
            await stack.enter_async_context(
                running_controller(*engines, replica=f"replica-{number}", probe_seconds=5.0, **settings)
            )
            for number in range(REPLICAS)
        ]
        traffic = Traffic(replicas, chance)
        samples: list[list[int]] = []
        sampling = asyncio.create_task(sampled(engines, samples))
        await traffic.run(seconds)
        sampling.cancel()
    counted = samples[len(samples) // 5 :]
    loads = [sum(sample[number] for sample in counted) / len(counted) for number in range(ENGINES)]
    mean = sum(loads) / ENGINES
    spread = sum(_deviation(sample) for sample in counted) / len(counted) / mean
    return Figure(policy, max(loads) / mean, spread, traffic.calls)


def _deviation(sample: list[int]) -> float:
    mean = sum(sample) / len(sample)
    return float((sum((value - mean) ** 2 for value in sample) / len(sample)) ** 0.5)


async def measure_all(table: str, policies: list[str], seconds: float) -> list[Figure]:
    """One policy after another."""
    return [await measure(table, policy, seconds, seed=1) for policy in policies]


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures how evenly replicas load the engines.")
    parser.add_argument("--seconds", type=float, default=40.0, help="for each policy")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="repeatable; default: all")
    parser.add_argument("--output", type=Path, default=report_path("routing"))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_etcd(Path(folder)) as etcd,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(measure_all(etcd.url, options.policy or list(POLICIES), options.seconds))
    sys.stdout.write("policy        worst/mean  spread at a moment  calls\n")
    for figure in figures:
        sys.stdout.write(f"{figure.name:<12}  {figure.value:>10.2f}  {figure.spread:>18.2f}  {figure.calls:>5}\n")
    goals = [
        Goal(f"worst engine over mean, {figure.name}", figure.value, GOAL)
        for figure in figures
        if figure.name == JUDGED
    ]
    write(options.output, goals, msgspec.to_builtins(figures))
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
