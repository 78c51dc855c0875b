"""What a second process on the same port brings. Writes build/bench/gateway-scaling.json.

    PYTHONPATH=tests:tests/kubernetes:bench python -m autellix_bench.gateway_scaling --router .../bin/vllm-router

Everything runs on the same two cores: gateways, engines, client and etcd. So one process cannot be limited by the other
core, and two share what the traffic leaves them: the figures are a floor for machines with more cores. vllm-router is
one process that uses all cores it is given. Otherwise as in ``gateway``.
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from autellix_bench.candidates import BOTH_CORES, Candidate, autellix_processes, interpreter, vllm_router
from autellix_bench.gateway import (
    STREAM_EVENTS,
    Load,
    Results,
    build_traffic,
    etcd_on,
    figures,
    measure,
    shown,
)
from autellix_bench.goals import report_path, write
from support.etcd import free_ports

LOADS = (
    Load("2 KB, 128 connections", 128, 2048),
    Load("saturated streams, 128 connections", 128, 2048, STREAM_EVENTS),
)


def gain(results: Results, load: str, one: str, other: str) -> float:
    """How much more a second ``other`` serves than ``one``: the median over the rounds."""
    pairs = zip(results[load, one], results[load, other], strict=True)
    return float(statistics.median(b.per_second / a.per_second for a, b in pairs))


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures what a second process of the gateway brings.")
    parser.add_argument("--router", type=Path, required=True, help="the program vllm-router")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a slot")
    parser.add_argument("--output", type=Path, default=report_path("gateway-scaling"))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        traffic = build_traffic(folder, BOTH_CORES)
        table = stack.enter_context(etcd_on(folder, BOTH_CORES))
        engines = stack.enter_context(traffic.engines(folder, 2))
        python = interpreter()
        sys.stdout.write(f"our controller runs on {python.describe()}\n")
        router_port, _, one_port, two_port = free_ports(4)
        candidates = [
            Candidate("direct", engines[0]),
            stack.enter_context(vllm_router(folder, router_port, engines, options.router, cores=BOTH_CORES)),
            stack.enter_context(autellix_processes(folder, one_port, engines, table, python, count=1)),
            stack.enter_context(autellix_processes(folder, two_port, engines, table, python, count=2)),
        ]
        results = measure(traffic, candidates, LOADS, options.rounds, options.seconds)
    sys.stdout.write(shown(results) + "\n")
    for load in LOADS:
        two = gain(results, load.name, "autellix x1", "autellix x2")
        router = gain(results, load.name, "vllm-router", "autellix x2")
        sys.stdout.write(f"{load.name}: two processes {two:.2f}x one, {router:.2f}x vllm-router, on the same cores\n")
    write(options.output, [], {"python": vars(python), "slots": figures(results)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
