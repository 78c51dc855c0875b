"""What a second process on the same port brings. Writes build/bench/gateway-scaling.json.

    PYTHONPATH=tests:tests/kubernetes:bench python -m autellix_bench.gateway_scaling --router .../bin/vllm-router

Everything runs on the same two cores: gateways, engines, client and etcd. So one process cannot be limited by the other
core, and two share what the traffic leaves them: the figures are a floor for machines with more cores. vllm-router is
one process that uses all cores it is given. Otherwise as in ``gateway``.
"""

import statistics
import sys
from contextlib import ExitStack

from autellix_bench.candidates import BOTH_CORES, Candidate, autellix_processes, vllm_router
from autellix_bench.gateway import (
    STREAM_EVENTS,
    Load,
    Results,
    arguments,
    figures,
    measure,
    shown,
    stage,
)
from autellix_bench.goals import write
from support.ports import free_ports

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
    options = arguments("Measures what a second process of the gateway brings.", "gateway-scaling").parse_args()
    with ExitStack() as stack:
        on = stack.enter_context(stage(BOTH_CORES))
        router_port, _, one_port, two_port = free_ports(4)
        ours = (on.engines, on.table, on.python)
        candidates = [
            Candidate("direct", on.engines[0]),
            stack.enter_context(vllm_router(on.folder, router_port, on.engines, options.router, cores=BOTH_CORES)),
            stack.enter_context(autellix_processes(on.folder, one_port, *ours, count=1)),
            stack.enter_context(autellix_processes(on.folder, two_port, *ours, count=2)),
        ]
        results = measure(on.traffic, candidates, LOADS, options.rounds, options.seconds)
    sys.stdout.write(shown(results) + "\n")
    for load in LOADS:
        two = gain(results, load.name, "autellix x1", "autellix x2")
        router = gain(results, load.name, "vllm-router", "autellix x2")
        sys.stdout.write(f"{load.name}: two processes {two:.2f}x one, {router:.2f}x vllm-router, on the same cores\n")
    write(options.output, [], {"python": vars(on.python), "slots": figures(results)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
