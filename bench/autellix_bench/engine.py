"""What the order of calls is worth: the same closed-loop programs on one real engine under five schedulers.

    PYTHONPATH=tests:bench python -m autellix_bench.engine [--programs N] [--repeats R] [--slots S] [--load L]

vLLM runs a tiny model in this process. Between two runs it gets a fresh scheduler: vLLM's own, or ours with one of the
four policies. What a scheduler itself costs is measured by ``autellix_bench.scheduler``; here a step takes what such a
step takes on this machine (``--clock model``), or its own CPU time (``--clock cpu``). Writes build/bench/engine.json.
"""

import argparse
import os
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from autellix_bench.clocks import Clock, CpuClock, ModelClock, fit
from autellix_bench.goals import Goal, report_path, write
from autellix_bench.programs import Program, mixed
from autellix_engine.policy.levels import SHARES
from autellix_engine.records.channel import NullPublisher
from autellix_engine.scheduler import ProgramScheduler
from autellix_wire.context import ProgramContext
from autellix_wire.records import CallRecord
from support.in_process_engine import InProcessEngine

STOCK: Final = "stock"
SCHEDULERS: Final = (STOCK, "fcfs", "mlfq", "plas", "atlas")
CONTEXT: Final = 4_096


class Records(NullPublisher):
    """Keeps the records of calls."""

    def __init__(self) -> None:
        super().__init__("bench", "bench")
        self.records: list[CallRecord] = []
        self.ended: list[str] = []

    def publish(self, record: CallRecord) -> None:
        self.records.append(record)

    def ended_programs(self) -> Sequence[str]:
        ended, self.ended = self.ended, []
        return ended


@dataclass
class Run:
    """One run: seconds from each program's arrival to its end, and what the scheduler did."""

    latencies: list[float] = field(default_factory=list)
    per_token: list[float] = field(default_factory=list)
    """The same for each token that the program generated: the paper's measure."""
    seconds: float = 0.0
    preemptions: int = 0
    recomputed: int = 0
    service_ms: float = 0.0
    """Mean service of a program, as ours counts it; 0 under stock."""


class Live:
    """A program on its way."""

    def __init__(self, name: str, program: Program, arrived: float) -> None:
        self.name, self.program, self.arrived = name, program, arrived
        self.stage = -1
        self.open: set[str] = set()
        self.history: list[int] = []
        self._rng = random.Random(name)

    def next_calls(self) -> list[tuple[str, list[int], int]]:
        """The calls of the next stage: name, prompt, tokens to generate. None are left after the last stage."""
        self.stage += 1
        if self.stage == len(self.program.stages):
            return []
        calls = []
        for i, shape in enumerate(self.program.stages[self.stage]):
            new = [self._rng.randrange(10, 1_500) for _ in range(shape.prompt)]
            prompt = [*self.history, *new][-(CONTEXT - shape.output - 1) :]
            calls.append((f"{self.name}/{self.stage}/{i}", prompt, shape.output))
        self.open = {name for name, _, _ in calls}
        return calls


def tell_steps(scheduler: Any, clock: Clock) -> None:
    """Tells the clock of every step, once it is scheduled."""
    schedule = scheduler.schedule

    def told(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        clock.step(len(output.num_scheduled_tokens), output.total_num_scheduled_tokens)
        return output

    scheduler.schedule = told


def play(
    engine: InProcessEngine, scheduler: str, programs: Sequence[Program], gap: float, top_ms: float, clock: Clock
) -> Run:
    """Plays the programs, ``gap`` seconds between two arrivals on average."""
    publisher = Records()
    if scheduler == STOCK:
        engine.replace_scheduler(AsyncScheduler, {})
    else:
        settings = {
            "policy": scheduler,
            "queue_bounds_ms": [share * top_ms for share in SHARES],
            "starvation_floor_ms": SHARES[0] * top_ms,
        }
        engine.replace_scheduler(ProgramScheduler, settings, clock=clock, publisher=publisher)
    tell_steps(engine.scheduler, clock)
    waiting = deque((program.arrival * gap, f"{i}", program) for i, program in enumerate(programs))
    live: dict[str, Live] = {}
    run = Run()

    def send(one: Live) -> None:
        for name, prompt, output in one.next_calls():
            parameters = SamplingParams(
                max_tokens=output,
                ignore_eos=True,
                temperature=0.0,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                extra_args=dict(ProgramContext(program=one.name, call=name).to_xargs()),
            )
            engine.vllm.add_request(name, {"prompt_token_ids": prompt}, parameters)

    while waiting or live:
        if not live:
            clock.skip_to(waiting[0][0])
        while waiting and waiting[0][0] <= clock():
            arrived, name, program = waiting.popleft()
            live[name] = Live(name, program, arrived)
            send(live[name])
        for output in engine.vllm.step():
            one = live[output.request_id.partition("/")[0]]
            one.open.remove(output.request_id)
            if output.request_id.endswith("/0"):
                one.history = [*(output.prompt_token_ids or ()), *output.outputs[0].token_ids]
            if one.open:
                continue
            send(one)
            if not one.open:
                del live[one.name]
                publisher.ended.append(one.name)
                run.latencies.append(clock() - one.arrived)
                run.per_token.append(run.latencies[-1] / one.program.output)
    run.seconds = clock()
    run.preemptions = sum(record.preemptions for record in publisher.records)
    run.recomputed = sum(record.recomputed_tokens for record in publisher.records)
    run.service_ms = sum(record.service_ms for record in publisher.records) / len(programs)
    return run


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


@dataclass(frozen=True)
class Ratio:
    """One measure of a scheduler in units of stock's, in each repeat."""

    each: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    def __str__(self) -> str:
        return f"{self.median:5.2f} ({min(self.each):.2f}-{max(self.each):.2f})"


def ratios(runs: dict[str, list[Run]], scheduler: str) -> dict[str, Ratio]:
    """Of the measures that are shown."""
    measures: dict[str, Callable[[Run], float]] = {
        "mean per token": lambda run: statistics.fmean(run.per_token),
        "P99 per token": lambda run: p99(run.per_token),
        "mean latency": lambda run: statistics.fmean(run.latencies),
        "P99 latency": lambda run: p99(run.latencies),
    }
    return {
        name: Ratio(tuple(measure(a) / measure(b) for a, b in zip(runs[scheduler], runs[STOCK], strict=True)))
        for name, measure in measures.items()
    }


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures programs under each order of calls.")
    parser.add_argument("--programs", type=int, default=30, help="in each run")
    parser.add_argument("--repeats", type=int, default=3, help="each with other programs, the same for every scheduler")
    parser.add_argument("--slots", type=int, default=4, help="calls that run at once")
    parser.add_argument("--clock", choices=["model", "cpu"], default="model", help="what a step takes")
    parser.add_argument("--load", type=float, default=0.8, help="arrivals to what the engine can serve")
    options = parser.parse_args()
    out = sys.stdout
    runs: dict[str, list[Run]] = {scheduler: [] for scheduler in SCHEDULERS}
    with InProcessEngine(slots=options.slots, blocks=4_000, scheduling={}, max_model_len=CONTEXT) as engine:
        play(engine, STOCK, mixed(3, seed=0), gap=0.0, top_ms=1_000, clock=CpuClock())  # warm
        # What the engine can serve: all programs at once. Levels as `auto` would settle.
        trial = mixed(options.programs, seed=1)
        measured = CpuClock()
        full = play(engine, "fcfs", trial, gap=0.0, top_ms=1_000, clock=measured)
        step = fit(measured.steps)
        base, each_call, each_token = (1000 * seconds for seconds in step)
        out.write(f"a step: {base:.2f} ms + {each_call:.3f} ms a call + {each_token:.4f} ms a token\n")
        if options.clock == "model":
            full = play(engine, "fcfs", trial, gap=0.0, top_ms=1_000, clock=ModelClock(step))
        seconds_per_token = full.seconds / sum(program.output for program in trial)
        top_ms = 3 * full.service_ms
        out.write(
            f"{options.slots} slots, load {options.load}; served in order: {1 / seconds_per_token:.0f} tokens/s, "
        )
        out.write(f"{full.service_ms / 1000:.2f} s of service a program, top bound {top_ms / 1000:.2f} s\n")
        for repeat in range(options.repeats):
            programs = mixed(options.programs, seed=repeat + 1)
            gap = sum(program.output for program in programs) * seconds_per_token / len(programs) / options.load
            shift = repeat % len(SCHEDULERS)  # nobody is always first
            for scheduler in SCHEDULERS[shift:] + SCHEDULERS[:shift]:
                clock = ModelClock(step) if options.clock == "model" else CpuClock()
                runs[scheduler].append(play(engine, scheduler, programs, gap, top_ms, clock))
                run = runs[scheduler][-1]
                out.write(
                    f"  repeat {repeat + 1} {scheduler:<6} mean latency {statistics.fmean(run.latencies):7.2f} s, "
                )
                out.write(f"per token {1000 * statistics.fmean(run.per_token):7.2f} ms\n")
                out.flush()
    shown = {scheduler: ratios(runs, scheduler) for scheduler in SCHEDULERS[1:]}
    out.write(f"\n{'to stock, median (spread)':<14}" + "".join(f"{name:>20}" for name in shown["fcfs"]))
    out.write(f"{'preempted':>11}{'recomputed':>12}\n")
    for scheduler, columns in shown.items():
        preempted = statistics.median(run.preemptions for run in runs[scheduler])
        recomputed = statistics.median(run.recomputed for run in runs[scheduler])
        out.write(f"{scheduler:<25}" + "".join(f"{ratio!s:>20}" for ratio in columns.values()))
        out.write(f"{preempted:>11.0f}{recomputed:>12.0f}\n")
    plas, fcfs = shown["plas"], shown["fcfs"]
    goals = [
        Goal("plas: mean program latency per token to stock's", plas["mean per token"].median, 0.5, " x"),
        Goal("plas: P99 program latency per token to stock's", plas["P99 per token"].median, 1.0, " x"),
        Goal("plas: mean program latency to stock's", plas["mean latency"].median, 0.5, " x"),
        Goal("plas: P99 program latency to stock's", plas["P99 latency"].median, 1.0, " x"),
        Goal("fcfs: mean program latency off stock's", abs(fcfs["mean latency"].median - 1) * 100, 3.0, " %"),
    ]
    figures = {
        "slots": options.slots,
        "load": options.load,
        "programs": options.programs,
        "runs": {
            scheduler: [
                {"latencies": run.latencies, "per_token": run.per_token, "preemptions": run.preemptions}
                for run in repeats
            ]
            for scheduler, repeats in runs.items()
        },
    }
    write(report_path("engine"), goals, figures)
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
