"""What our scheduler costs beside vLLM's own. Writes build/bench/scheduler.json.

    PYTHONPATH=tests:bench python -m autellix_bench.scheduler [--quick]

Both schedulers run in this process on the same requests, a step of one and a step of the other in turn; what is timed
is ``schedule`` and ``update_from_output`` in CPU time of this thread. There is no model: the outputs are made up.
"""

import argparse
import gc
import itertools
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from autellix_bench.goals import Goal, report_path, write
from autellix_engine.policy import Core, SchedulingSettings
from autellix_engine.records.channel import ChannelPublisher
from autellix_engine.records.interface import SchedulerFigures
from autellix_engine.scheduler import ProgramScheduler
from autellix_wire.context import ProgramContext
from autellix_wire.records import LoadReport
from support.call_records import call_record
from support.model_free import ManualClock, make_request, make_scheduler, vllm_config

STEP_MS: Final = 20.0
GOAL_MIN, GOAL_P99, GOAL_WORST = 1.10, 1.5, 2.0
HANDOVER: Final = 4
"""Slots that change hands in a step that preempts: the default limit."""


class Rig:
    """One scheduler with its requests."""

    def __init__(self, scheduler_class: type[Any], running: int, waiting: int, **settings: object) -> None:
        self.clock = ManualClock()
        ours = {"clock": self.clock} if scheduler_class is ProgramScheduler else {}
        config = vllm_config(slots=running, blocks=300_000, token_budget=100_000, scheduling=settings)
        self.scheduler = make_scheduler(scheduler_class, config, **ours)
        self.number = 0
        for _ in range(running):
            self.add(service_ms=5_000.0)
        self.step()
        for _ in range(waiting):
            self.add(service_ms=70_000.0)

    def add(self, *, service_ms: float = 0.0, output: int = 5_000) -> str:
        """One more request, of a program of its own."""
        self.number += 1
        name = f"r{self.number}"
        context = ProgramContext(program=f"p{self.number}", call=name, service_ms=service_ms)
        self.scheduler.add_request(make_request(name, prompt=64, output=output, context=context))
        return name

    def end(self, names: Sequence[str]) -> float:
        """Ends requests; returns the milliseconds of CPU time."""
        began = time.thread_time_ns()
        self.scheduler.finish_requests(list(names), RequestStatus.FINISHED_STOPPED)
        return (time.thread_time_ns() - began) / 1e6

    def step(self) -> float:
        """Runs a step; returns its milliseconds of CPU time, the search for garbage among what it made included."""
        gc.collect(0)
        began = time.thread_time_ns()
        scheduled = self.scheduler.schedule()
        scheduling = time.thread_time_ns() - began
        ids = list(scheduled.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={name: i for i, name in enumerate(ids)},
            sampled_token_ids=[[5]] * len(ids),
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        self.clock.advance_ms(STEP_MS)
        began = time.thread_time_ns()
        self.scheduler.update_from_output(scheduled, output)
        gc.collect(0)
        return (scheduling + time.thread_time_ns() - began) / 1e6


@dataclass
class Comparison:
    """CPU milliseconds of single steps, one list for each repeat."""

    name: str
    stock: list[list[float]] = field(default_factory=list)
    ours: list[list[float]] = field(default_factory=list)

    def repeat(self) -> Callable[[float, float], None]:
        """Begins a repeat; returns what takes a step of each."""
        stock: list[float] = []
        ours: list[float] = []
        self.stock.append(stock)
        self.ours.append(ours)

        def take(of_stock: float, of_ours: float) -> None:
            stock.append(of_stock)
            ours.append(of_ours)

        return take

    @property
    def ratio_of_minima(self) -> list[float]:
        """In each repeat."""
        return [min(ours) / min(stock) for stock, ours in zip(self.stock, self.ours, strict=True)]

    @property
    def ratio_of_p99(self) -> float:
        """Over all repeats."""
        ours, stock = (list(itertools.chain.from_iterable(repeats)) for repeats in (self.ours, self.stock))
        return p99(ours) / p99(stock)

    def goals(self) -> list[Goal]:
        return [
            Goal(f"{self.name}: minimum CPU time to stock's", statistics.median(self.ratio_of_minima), GOAL_MIN, " x"),
            Goal(f"{self.name}: 99th percentile to stock's", self.ratio_of_p99, GOAL_P99, " x"),
        ]

    def line(self) -> str:
        ratios = self.ratio_of_minima
        stock, ours = (statistics.median(map(min, repeats)) for repeats in (self.stock, self.ours))
        return (
            f"{self.name:<34} {stock:8.2f} {ours:8.2f}   {statistics.median(ratios):5.2f} "
            f"({min(ratios):.2f}-{max(ratios):.2f})   {self.ratio_of_p99:5.2f}"
        )


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def settle() -> None:
    """What vLLM does once an engine is up: the heap so far is no longer searched for garbage."""
    gc.collect()
    gc.freeze()


@contextmanager
def each_its_own_garbage() -> Iterator[None]:
    """Garbage is searched for by steps alone. Left to itself, the collector runs when both schedulers together have
    made enough, and the one that just runs then pays for the other."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def steady(running: int, waiting: int, repeats: int, steps: int) -> Comparison:
    """All slots are taken, and nothing changes but that tokens come."""
    stock, ours = Rig(AsyncScheduler, running, waiting), Rig(ProgramScheduler, running, waiting)
    settle()
    result = Comparison(f"{running} running, {waiting:,} waiting")
    for _ in range(repeats):
        take = result.repeat()
        for _ in range(steps):
            take(stock.step(), ours.step())
    return result


def preempting(running: int, waiting: int, repeats: int, rounds: int) -> Comparison:
    """Steps in which four slots change hands: ours preempts four calls for better ones, in stock's four calls end."""
    stock, ours = Rig(AsyncScheduler, running, waiting), Rig(ProgramScheduler, running, waiting, min_run_ms=0)
    settle()
    result = Comparison(f"{running} running, {waiting:,} waiting, preempting")
    for _ in range(repeats):
        take = result.repeat()
        for _ in range(rounds):
            preemptions = ours.scheduler.core.counts["preemptions_policy"]
            better = [ours.add() for _ in range(HANDOVER)]
            for _ in range(HANDOVER):
                stock.add()
            ended = stock.end([request.request_id for request in stock.scheduler.running[:HANDOVER]])
            take(ended + stock.step(), ours.step())
            assert ours.scheduler.core.counts["preemptions_policy"] == preemptions + HANDOVER
            ours.end(better)
            stock.step()
            ours.step()  # the four resume
    return result


def demotion(running: int, repeats: int) -> tuple[float, str]:
    """All running calls use up their quantum in one step while better ones wait. Returns the worst of the steps around
    it, each by the median of repeats, in units of a step of stock's at the same time."""
    quantum, around = 400, range(-3, 30)
    ratios: dict[int, list[float]] = {moment: [] for moment in around}
    for _ in range(repeats):
        stock = Rig(AsyncScheduler, running, 0)
        ours = Rig(ProgramScheduler, running, 0, queue_bounds_ms=[6_000, 12_000], quanta_ms=[quantum, 6_000])
        for rig in (stock, ours):
            for _ in range(running):
                rig.add(service_ms=5_000.0)  # behind those that run, and a level above them once they are demoted
        used_up = round(quantum / STEP_MS) - 1  # the first step is done
        for _ in range(used_up + around.start):
            stock.step()
            ours.step()
        settle()
        for moment in around:
            reference = stock.step()
            ratios[moment].append(ours.step() / reference)
        counts = ours.scheduler.core.counts
        assert counts["demotions"] >= running, "all were demoted"
        assert counts["preemptions_policy"] > 0, "and began to give way"
    worst = max(around, key=lambda moment: statistics.median(ratios[moment]))
    ratio = statistics.median(ratios[worst])
    return ratio, f"{running} running, all demoted at once: worst step {ratio:.2f} x, {worst:+d} from it"


def core_costs(repeats: int) -> list[Goal]:
    """Single operations of the decision core beside 256 running and 10,000 waiting calls: each the median of a round,
    in the quietest of five."""
    core = Core(SchedulingSettings.parse({}))
    running = [f"r{i}" for i in range(256)]
    for i, key in enumerate(running):
        core.arrive(key, now=0, program=f"p{i}", service_ms=100.0 * i)
        core.start(key, 0)
    for i in range(10_000):
        core.arrive(f"w{i}", now=0, program=f"q{i}", service_ms=100_000.0)
    settle()

    def median_us(operation: Callable[[int], object]) -> float:
        times = timed(operation, repeats)
        rounds = range(0, repeats, repeats // 5)
        return min(statistics.median(times[start : start + repeats // 5]) for start in rounds)

    def preempt_and_start(i: int) -> None:
        core.preempt(running[i % 256], 3)
        core.start(running[i % 256], 3)

    return [
        Goal("core: a plan that changes nothing", median_us(lambda i: core.plan(1, 0)), 100, " us"),
        Goal(
            "core: arrival",
            median_us(lambda i: core.arrive(f"x{i}", now=1, program=f"n{i}", service_ms=70.0 * i)),
            10,
            " us",
        ),
        Goal("core: charge of a step, each call", median_us(lambda i: core.charge(running, 1)) / 256, 10, " us"),
        Goal("core: end", median_us(lambda i: core.end(f"x{i}", 2)), 10, " us"),
        Goal("core: preemption and resume", median_us(preempt_and_start), 20, " us"),
        Goal("core: worst ratio, once a report", median_us(lambda i: core.worst_ratio(5)), 500, " us"),
    ]


def channel_costs(repeats: int) -> list[Goal]:
    """What a record and a report cost the scheduler, with nobody at the other end: later records are dropped."""
    with tempfile.TemporaryDirectory() as folder:
        publisher = ChannelPublisher(
            str(Path(folder) / "records.sock"), "engine", "incarnation", queue_messages=repeats
        )
        load, figures = LoadReport(engine="e", incarnation="i", running=1, waiting=1), SchedulerFigures()
        record = call_record()
        state = {"calls": [{"key": f"{i}", "level": 1, "service_ms": 1.0} for i in range(100)]}
        queued = timed(lambda i: publisher.publish(record), repeats - 10)
        dropped = timed(lambda i: publisher.publish(record), repeats)
        reports = timed(lambda i: publisher.report(load, state, figures), repeats)
        assert publisher.dropped >= repeats - 10
        publisher.close()
    return [
        Goal("channel: a record, 99th percentile", p99(queued), 200, " us"),
        Goal("channel: a record that is dropped, 99th percentile", p99(dropped), 200, " us"),
        Goal("channel: a load report, 99th percentile", p99(reports), 500, " us"),
    ]


def timed(operation: Callable[[int], object], repeats: int) -> list[float]:
    """Microseconds of CPU time of each repeat; the operation is told its number."""
    times = []
    for i in range(repeats):
        began = time.thread_time_ns()
        operation(i)
        times.append((time.thread_time_ns() - began) / 1000)
    return times


def sizes(quick: bool) -> Iterator[tuple[int, int]]:
    """Running and waiting calls to measure with."""
    for running in (64, 256) if quick else (64, 256, 1_024):
        for waiting in (0, 1_000) if quick else (0, 1_000, 10_000):
            yield running, waiting


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures what the scheduler costs.")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and steps")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ["HF_HUB_OFFLINE"] = "1"
    steps = 60 if options.quick else 150
    out = sys.stdout
    out.write(f"{'CPU ms of schedule + update, minimum':<37}{'stock':>6}{'ours':>9}   ratio of minima      p99\n")
    with each_its_own_garbage():
        comparisons = []
        for running, waiting in sizes(options.quick):
            comparisons.append(steady(running, waiting, options.repeats, steps))
            out.write(comparisons[-1].line() + "\n")
            out.flush()
        for running in (64, 256):
            comparisons.append(preempting(running, 1_000, options.repeats, steps * 2 // 3))
            out.write(comparisons[-1].line() + "\n")
            out.flush()
        goals = [goal for comparison in comparisons for goal in comparison.goals()]
        for running in (256,) if options.quick else (256, 1_024):
            worst, text = demotion(running, options.repeats)
            name = f"{running} running, all demoted at once: worst step to stock's"
            goals.append(Goal(name, worst, GOAL_WORST, " x"))
            out.write(text + "\n")
    goals += core_costs(5_000) + channel_costs(1_000)
    figures = {
        comparison.name: {
            "stock_ms": [min(repeat) for repeat in comparison.stock],
            "ours_ms": [min(repeat) for repeat in comparison.ours],
            "ratio_p99": comparison.ratio_of_p99,
        }
        for comparison in comparisons
    }
    write(report_path("scheduler"), goals, figures)
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
