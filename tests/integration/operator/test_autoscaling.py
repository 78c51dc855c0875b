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


@pytest.fixture
def figures(bench: Bench, tmp_path: Path) -> Iterator[Figures]:
    with external_metrics(bench.admin, tmp_path) as served:
        yield served


def autoscaler() -> dict[str, Any]:
    """The one that the documentation gives."""
    document: dict[str, Any] = yaml.safe_load((REPOSITORY / "docs" / "samples" / "autoscaler.yaml").read_text())
    document["metadata"]["name"] = document["spec"]["scaleTargetRef"]["name"] = "demo"
    return document


def test_an_autoscaler_follows_the_programs_that_are_runnable(bench: Bench, figures: Figures) -> None:
    def replicas() -> int:
        number: int = bench.get("autellixclusters", "demo")["spec"]["engine"]["replicas"]
        return number

    path = f"/apis/autoscaling/v2/namespaces/{bench.namespace}/horizontalpodautoscalers"
    with bench.operator():
        bench.make_cluster(engine={"replicas": 1})
        eventually(lambda: bench.get("autellixclusters", "demo").get("status", {}).get("selector"), "a selector")
        document = autoscaler()
        (metric,) = document["spec"]["metrics"]
        target = int(metric["external"]["target"]["averageValue"])
        figures.set(METRIC, 3 * target)
        bench.admin.request("POST", path, document)
        eventually(lambda: replicas() == 3, "three times the target takes three engines", 60)
        eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 3, "the engines follow")
        figures.set(METRIC, 100 * target)
        eventually(lambda: replicas() == document["spec"]["maxReplicas"], "as many as it may", 60)
        conditions = bench.admin.request("GET", f"{path}/demo")["status"]["conditions"]
        states = {each["type"]: each["status"] for each in conditions}
        assert (states["AbleToScale"], states["ScalingActive"]) == ("True", "True")
