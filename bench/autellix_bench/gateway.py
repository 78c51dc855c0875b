"""What our gateway costs beside vllm-router and nginx in the same run. Writes build/bench/gateway.json.

    PYTHONPATH=tests:tests/kubernetes:bench python -m autellix_bench.gateway --router build/bench/router/bin/vllm-router

Each gateway has one core; engines, client and etcd have the other. The slots are short and interleaved, the order is
reversed every round. CPU is that of the whole process tree by what it served, which holds on a busy machine as well;
answers a second hold on a quiet one only. Engines and client are ``bench/gateway/traffic.c``. An answer that is not
what it should be voids the slot, and with it the run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autellix_bench.candidates import (
    TRAFFIC_CORE,
    Candidate,
    Interpreter,
    autellix,
    interpreter,
    nginx,
    process,
    vllm_router,
    wait_until_it_serves,
)
from autellix_bench.goals import Goal, report_path, write
from support.etcd import running_etcd
from support.ports import free_ports

REFERENCE = "vllm-router"
UNIT = f" of {REFERENCE}'s"
#: An answer of 128 tokens, at 50 a second.
STREAM_EVENTS, PACE_MS = 128, 20
SOURCE = Path(__file__).parents[1] / "gateway" / "traffic.c"


@dataclass(frozen=True)
class Load:
    """One kind of traffic."""

    name: str
    connections: int
    body_bytes: int
    events: int = 0
    paced: bool = False

    @property
    def unit(self) -> str:
        """What is counted."""
        return "events" if self.events else "answers"


def loads(full: bool) -> list[Load]:
    """The traffic; the short list holds what the goals need and one of each other kind."""
    found = [Load(f"2 KB, {n} connections", n, 2048) for n in (1, 32, 128)]
    found += [Load(f"200 KB, {n} connections", n, 200_000) for n in ((1, 32, 128) if full else (32,))]
    found += [
        Load(f"saturated streams, {n} connections", n, 2048, STREAM_EVENTS) for n in ((1, 32, 128) if full else (32,))
    ]
    found += [
        Load(f"paced streams, {n} connections", n, 2048, STREAM_EVENTS, paced=True)
        for n in ((1, 32, 128) if full else (128,))
    ]
    return found


@dataclass(frozen=True)
class Slot:
    """What one slot gave."""

    per_second: float
    cpu_us: float
    """CPU of the gateway for each unit."""
    median_us: float
    first_us: float


@dataclass(frozen=True)
class Traffic:
    """The program that makes traffic, and where it runs."""

    program: Path
    cores: str = TRAFFIC_CORE

    @contextmanager
    def engines(self, folder: Path, count: int) -> Iterator[list[int]]:
        """Ports of so many engines."""
        ports = free_ports(count)
        with ExitStack() as stack:
            for port in ports:
                command = [str(self.program), "engine", str(port), str(STREAM_EVENTS), str(PACE_MS)]
                stack.enter_context(process(command, self.cores, folder / f"engine-{port}.log"))
                wait_until_it_serves(port, folder / f"engine-{port}.log")
            yield ports


def build_traffic(folder: Path, cores: str = TRAFFIC_CORE) -> Traffic:
    """Compiles the program."""
    subprocess.run(["cc", "-O2", "-o", str(folder / "traffic"), str(SOURCE)], check=True)
    return Traffic(folder / "traffic", cores)


@contextmanager
def etcd_on(folder: Path, cores: str) -> Iterator[str]:
    """URL of an etcd on these cores."""
    with running_etcd(folder) as etcd:
        for member in etcd.members:
            if member.process is not None:
                os.sched_setaffinity(member.process.pid, {int(core) for core in cores.split(",")})
        yield etcd.url


def run_slot(traffic: Traffic, candidate: Candidate, load: Load, seconds: float) -> Slot:
    """One slot of traffic. Raises RuntimeError if any answer was wrong."""
    before = candidate.cpu_seconds()
    done = subprocess.run(
        [
            *("taskset", "-c", traffic.cores, str(traffic.program), "client", str(candidate.port)),
            *(str(load.connections), str(seconds), str(load.body_bytes), str(load.events)),
            "paced" if load.paced else "fast",
        ],
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=True,
    )
    found = json.loads(done.stdout)
    if found["bad"] or found["connections"] != load.connections:
        raise RuntimeError(f"{candidate.name}, {load.name}: {found}")
    cpu = candidate.cpu_seconds() - before
    return Slot(
        # Paced streams of one round end together, perhaps all after the slot's end: the time in which they ran counts.
        per_second=found[f"all_{load.unit}"] / found["all_seconds"],
        cpu_us=cpu / max(1, found[f"all_{load.unit}"]) * 1e6,
        median_us=found["median_us"],
        first_us=found["first_us"],
    )


Results = dict[tuple[str, str], list[Slot]]


def measure(
    traffic: Traffic, candidates: Sequence[Candidate], wanted: Sequence[Load], rounds: int, seconds: float
) -> Results:
    """All slots by load and candidate."""
    results: Results = {}
    for candidate in candidates:
        for load in wanted:  # connections are made, code is warm
            run_slot(traffic, candidate, load, 0.3)
    for number in range(rounds):
        order = candidates if number % 2 == 0 else candidates[::-1]
        for load in wanted:
            for candidate in order:
                slot = run_slot(traffic, candidate, load, seconds)
                results.setdefault((load.name, candidate.name), []).append(slot)
        sys.stderr.write(f"round {number + 1} of {rounds} done, load average {os.getloadavg()[0]:.1f}\n")
    return results


def median(slots: Sequence[Slot], field: str) -> float:
    """The median of one figure."""
    return float(statistics.median(getattr(slot, field) for slot in slots))


def spread(slots: Sequence[Slot], field: str) -> float:
    """From the least to the greatest, by the median."""
    values: list[float] = [getattr(slot, field) for slot in slots]
    return (max(values) - min(values)) / (statistics.median(values) or 1.0)


def goals(results: Results) -> list[Goal]:
    """The goals, as ratios to the reference of the same round; the median over the rounds."""

    def ratio(load: str, field: str, less: float = 0.0) -> float:
        ours, theirs = results[load, "autellix"], results[load, REFERENCE]
        pairs = zip(ours, theirs, strict=True)
        return float(statistics.median((getattr(a, field) - less) / (getattr(b, field) - less) for a, b in pairs))

    direct = median(results["2 KB, 1 connections", "direct"], "median_us")
    answers = ratio("2 KB, 32 connections", "per_second")
    events = ratio("saturated streams, 32 connections", "per_second")
    paced_cpu = ratio("paced streams, 128 connections", "cpu_us")
    added = ratio("2 KB, 1 connections", "median_us", less=direct)
    return [
        Goal("2 KB, 32 connections: answers a second", answers, 1.0, UNIT, at_least=True),
        Goal("saturated streams: events a second", events, 1.2, UNIT, at_least=True),
        Goal("paced streams: CPU an event", paced_cpu, 1.5, UNIT),
        Goal("2 KB, 1 connection: median latency added", added, 1.25, UNIT),
    ]


def shown(results: Results) -> str:
    """All figures for people."""
    lines = [f"{'':36}{'':14}{'a second':>10}{'spread':>8}{'CPU us':>9}{'spread':>8}{'median ms':>11}{'first ms':>10}"]
    for (load, candidate), slots in sorted(results.items()):
        lines.append(
            f"{load:36}{candidate:14}{median(slots, 'per_second'):10,.0f}{spread(slots, 'per_second'):8.0%}"
            f"{median(slots, 'cpu_us'):9.1f}{spread(slots, 'cpu_us'):8.0%}"
            f"{median(slots, 'median_us') / 1e3:11.3f}{median(slots, 'first_us') / 1e3:10.3f}"
        )
    return "\n".join(lines)


def figures(results: Results) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {"load": load, "gateway": candidate, "slots": [vars(slot) for slot in slots]}
        for (load, candidate), slots in results.items()
    ]


@dataclass(frozen=True)
class Stage:
    """What gateways are compared on."""

    folder: Path
    traffic: Traffic
    table: str
    """URL of an etcd."""
    engines: list[int]
    """Ports of two."""
    python: Interpreter
    """What our controller runs on."""


@contextmanager
def stage(cores: str) -> Iterator[Stage]:
    """Traffic, etcd and engines on these cores."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        traffic = build_traffic(folder, cores)
        table = stack.enter_context(etcd_on(folder, cores))
        engines = stack.enter_context(traffic.engines(folder, 2))
        python = interpreter()
        sys.stdout.write(f"our controller runs on {python.describe()}\n")
        yield Stage(folder, traffic, table, engines, python)


def arguments(description: str, name: str) -> argparse.ArgumentParser:
    """What every benchmark of the gateway can be told; ``name`` is that of its report."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--router", type=Path, required=True, help="the program vllm-router")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a slot")
    parser.add_argument("--output", type=Path, default=report_path(name))
    return parser


def main() -> int:
    """Measures, prints and writes the figures. The exit status is 1 if a goal is missed."""
    parser = arguments("Measures the gateway beside vllm-router and nginx.", "gateway")
    parser.add_argument("--full", action="store_true", help="every kind of traffic with 1, 32 and 128 connections")
    parser.add_argument("--only", default="", help="only the kinds of traffic whose name begins so (no goals then)")
    options = parser.parse_args()
    wanted = [load for load in loads(options.full) if load.name.startswith(options.only)]
    with ExitStack() as stack:
        on = stack.enter_context(stage(TRAFFIC_CORE))
        first, _, second, third = free_ports(4)
        candidates = [
            Candidate("direct", on.engines[0]),
            stack.enter_context(nginx(on.folder, second, on.engines)),
            stack.enter_context(vllm_router(on.folder, first, on.engines, options.router)),
            stack.enter_context(autellix(on.folder, third, on.engines, on.table, on.python)),
        ]
        results = measure(on.traffic, candidates, wanted, options.rounds, options.seconds)
    sys.stdout.write(shown(results) + "\n")
    if options.only:
        return 0
    found = goals(results)
    write(options.output, found, {"python": vars(on.python), "slots": figures(results)})
    return 0 if all(goal.met for goal in found) else 1


if __name__ == "__main__":
    sys.exit(main())
