"""A HorizontalPodAutoscaler of a real controller manager scales an AutellixCluster by a figure of its programs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart import REPOSITORY
from support.external_metrics import Figures, external_metrics
from support.operator_bench import Bench, eventually

METRIC = "autellix_runnable_programs"
HELD = "autellix_held_calls"


@pytest.fixture
def figures(bench: Bench, tmp_path: Path) -> Iterator[Figures]:
    with external_metrics(bench.admin, tmp_path) as served:
        yield served


def autoscaler(sample: str) -> dict[str, Any]:
    """One that the documentation gives."""
    document: dict[str, Any] = yaml.safe_load((REPOSITORY / "docs" / "samples" / sample).read_text())
    document["metadata"]["name"] = document["spec"]["scaleTargetRef"]["name"] = "demo"
    return document


def path(bench: Bench) -> str:
    return f"/apis/autoscaling/v2/namespaces/{bench.namespace}/horizontalpodautoscalers"


def targets(document: dict[str, Any]) -> dict[str, int]:
    externals = [metric["external"] for metric in document["spec"]["metrics"]]
    return {each["metric"]["name"]: int(each["target"]["averageValue"]) for each in externals}


def test_an_autoscaler_follows_the_programs_that_are_runnable(bench: Bench, figures: Figures) -> None:
    def replicas() -> int:
        number: int = bench.get("autellixclusters", "demo")["spec"]["engine"]["replicas"]
        return number

    with bench.operator():
        bench.make_cluster(engine={"replicas": 1})
        eventually(lambda: bench.get("autellixclusters", "demo").get("status", {}).get("selector"), "a selector")
        document = autoscaler("autoscaler.yaml")
        target = targets(document)[METRIC]
        figures.set(METRIC, 3 * target)
        bench.admin.request("POST", path(bench), document)
        eventually(lambda: replicas() == 3, "three times the target takes three engines")
        eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 3, "the engines follow")
        figures.set(METRIC, 100 * target)
        eventually(lambda: replicas() == document["spec"]["maxReplicas"], "as many as it may")
        conditions = bench.admin.request("GET", f"{path(bench)}/demo")["status"]["conditions"]
        states = {each["type"]: each["status"] for each in conditions}
        assert (states["AbleToScale"], states["ScalingActive"]) == ("True", "True")


def test_held_calls_bring_the_first_engine_and_programs_that_are_done_let_the_last_one_go(
    bench: Bench, figures: Figures
) -> None:
    document = autoscaler("autoscaler-from-zero.yaml")
    target = targets(document)
    assert document["spec"]["minReplicas"] == 0
    # The test waits for no half an hour.
    document["spec"]["behavior"]["scaleDown"] = {"stabilizationWindowSeconds": 0}

    def scaled_to(replicas: int) -> bool:
        live: int = bench.get("autellixclusters", "demo")["spec"]["engine"]["replicas"]
        return live == replicas

    def looked_at() -> bool:
        status = bench.admin.request("GET", f"{path(bench)}/demo").get("status", {})
        return any(
            each["type"] == "ScalingActive" and each["status"] == "True" for each in status.get("conditions", ())
        )

    with bench.operator():
        bench.make_cluster(engine={"replicas": 0}, controller={"deadlines": {"holdSeconds": 300}})
        bench.with_kubelet("demo", lambda: bench.condition("demo", "Ready")["reason"] == "ScaledToZero", "no engine")
        # Controllers hold nothing, and engines that could tell anything are not there.
        figures.set(HELD, 0)
        bench.admin.request("POST", path(bench), document)
        eventually(looked_at, "the autoscaler has looked")
        assert scaled_to(0)
        figures.set(HELD, 1)
        eventually(lambda: scaled_to(1), "one held call brings an engine")
        bench.make_ready()
        figures.set(HELD, 0)
        figures.set(METRIC, 2 * target[METRIC])
        eventually(lambda: scaled_to(2), "programs bring the second")
        bench.make_ready()
        figures.set(METRIC, 0)
        eventually(lambda: scaled_to(0), "no program wants to run")
        figures.forget(METRIC)
        figures.set(HELD, target[HELD] + 1)
        eventually(lambda: scaled_to(2), "more calls than one engine is given")
