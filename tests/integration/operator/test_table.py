"""What controllers say of the process table reaches its condition, on a real API server."""

import json
from typing import Any

from support.operator_bench import Bench, eventually
from support.pods import serving_pods

#: An address of this machine on which nothing else listens: pods are said to be there.
ADDRESS = "127.77.0.2"


class Controllers:
    """All controllers say the same. None: they do not answer."""

    def __init__(self) -> None:
        self.table: dict[str, Any] | None = None

    def answer(self, path: str) -> tuple[int, str]:
        if path != "/readyz" or self.table is None:
            return 404, ""
        return 200, json.dumps({"ready": True, "reasons": [], "degraded": [], "table": self.table})

    def reach_etcd(self) -> None:
        self.table = {"loaded": True, "connected": True, "cause": ""}

    def are_cut_off(self, cause: str) -> None:
        self.table = {"loaded": True, "connected": False, "cause": cause}


def test_the_process_table_is_judged_by_the_controllers_wherever_its_etcd_runs(bench: Bench) -> None:
    bench.pod_address = ADDRESS
    controllers = Controllers()
    with serving_pods(ADDRESS, controllers.answer), bench.operator("--figures-seconds=1"):
        bench.make_cluster("elsewhere", processTable={"etcd": {"endpoints": ["etcd.example:2379"]}})
        bench.make_cluster("own")
        for name in ("elsewhere", "own"):
            bench.make_ready(name)
        assert bench.wait_for("elsewhere", "ProcessTableReady", "NotReported")["status"] == "Unknown"
        assert bench.wait_for("own", "ProcessTableReady", "Available")["status"] == "True"
        controllers.reach_etcd()
        assert bench.wait_for("elsewhere", "ProcessTableReady", "External")["status"] == "True"
        eventually(
            lambda: (
                bench.get("autellixclusters", "own")["status"].get("processTable") == {"controllers": 2, "connected": 2}
            ),
            "controllers have told",
        )
        controllers.are_cut_off("etcd.example:2379: UNAUTHENTICATED")
        for name in ("elsewhere", "own"):
            told = bench.wait_for(name, "ProcessTableReady", "TableUnreachable")
            assert told["status"] == "False"
            assert told["message"].endswith("cannot reach etcd: etcd.example:2379: UNAUTHENTICATED")
            assert bench.condition(name, "Ready")["reason"] == "TableUnreachable"
            assert bench.condition(name, "Degraded")["status"] == "True"
        controllers.reach_etcd()
        bench.wait_for("elsewhere", "ProcessTableReady", "External")
        for name in ("elsewhere", "own"):
            bench.wait_for(name, "Ready", "Available")
            assert [each["reason"] for each in bench.events(name)][-2:] == ["TableUnreachable", "Available"]
