"""What the operator costs with many clusters, on a real API server. Writes build/bench/operator.json.

    PYTHONPATH=tests:tests/kubernetes:bench python -m autellix_bench.operator [--clusters N] [--rounds N]

The operator runs as a process of its own under the rights of the chart; API server and etcd share the machine with it.
Work is CPU time of that process, which does not depend on what else the machine does. Clusters come all at once; then
the operator looks at all of them again and again, and must neither write nor grow. The exit status is 1 if a goal is
missed.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import yaml

from autellix_bench.goals import Goal, report_path, write
from onenode.binaries import binary
from support.apiserver import Client, api_server
from support.chart import CRD
from support.operator_bench import KINDS, Bench, Operator, eventually

#: Between two looks at a cluster without any event, at most.
_RESYNC_SECONDS = 10
_GOAL_WORK_SECONDS = 60.0
_GOAL_GROWTH_PERCENT = 5.0


def cpu_seconds(process: int) -> float:
    """CPU time that a process has used so far."""
    figures = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(process: int) -> float:
    """Memory of a process that is in RAM."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def versions(bench: Bench) -> dict[tuple[str, str], str]:
    """The version of everything in the namespace: any write by anyone shows."""
    return {
        (plural, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for plural in (*KINDS, "autellixclusters", "events")
        for item in bench.find(plural)
    }


def converged(bench: Bench, count: int) -> bool:
    """Whether each cluster has its status and its last object."""
    clusters = bench.find("autellixclusters")
    told = [each for each in clusters if each.get("status", {}).get("observedGeneration") == 1]
    return len(told) == count and len(bench.find("deployments")) == 2 * count


def rounds(operator: Operator, count: int, wanted: float) -> None:
    """Waits until every cluster was looked at so many times more."""
    begin = operator.metric("autellix_operator_reconciles_total")
    eventually(
        lambda: operator.metric("autellix_operator_reconciles_total") >= begin + wanted * count,
        f"{wanted:.0f} more looks at each cluster",
        600,
    )


def measure(admin: Client, folder: Path, count: int, looks: int) -> tuple[list[Goal], dict[str, object]]:
    """Goals and figures."""
    # No controllers of Kubernetes run, so a namespace is all there is to it.
    admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    bench = Bench(admin, "bench", folder)
    with bench.operator(f"--resync-seconds={_RESYNC_SECONDS}", "--log-level=info") as operator:
        process = operator.process.pid
        work, began, empty = cpu_seconds(process), time.monotonic(), resident_mib(process)
        for number in range(count):
            bench.make_cluster(f"cluster-{number}")
        eventually(lambda: converged(bench, count), f"{count} clusters converge", 600)
        wall, work = time.monotonic() - began, cpu_seconds(process) - work
        # What came of the events of the last objects, and everything that is loaded once.
        rounds(operator, count, 2)
        before, settled, settled_work = versions(bench), resident_mib(process), cpu_seconds(process)
        rounds(operator, count, looks)
        each_look = (cpu_seconds(process) - settled_work) / (looks * count)
        grown, written = resident_mib(process), versions(bench) != before
    figures = {
        "clusters": count,
        "wall_seconds": round(wall, 1),
        "work_seconds": round(work, 1),
        "look_milliseconds": round(each_look * 1000, 1),
        "memory_mib": {"empty": round(empty, 1), "settled": round(settled, 1), "later": round(grown, 1)},
    }
    goals = [
        Goal("CPU of the operator until all clusters have converged", work, _GOAL_WORK_SECONDS, " s"),
        Goal("objects written while nothing changes", float(written), 0.0),
        Goal("growth of memory while nothing changes", (grown / settled - 1) * 100, _GOAL_GROWTH_PERCENT, " %"),
    ]
    return goals, figures


def main() -> int:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5, help="looks at each cluster while nothing changes")
    chosen = parser.parse_args()
    # Kubernetes' own controllers would only add work that is not the operator's.
    with api_server(binary("kube"), controllers=False) as admin, tempfile.TemporaryDirectory() as folder:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        admin.request("POST", crds, yaml.safe_load(CRD.read_text()))
        clusters = "/apis/autellix.dev/v1alpha1/autellixclusters"
        eventually(lambda: "items" in admin.request("GET", clusters), "the AutellixCluster API is served")
        goals, figures = measure(admin, Path(folder), chosen.clusters, chosen.rounds)
    for name, value in figures.items():
        sys.stdout.write(f"{name:>20}  {value}\n")
    write(report_path("operator"), goals, figures)
    return 0 if all(each.met for each in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
