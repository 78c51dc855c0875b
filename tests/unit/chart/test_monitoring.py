"""Dashboard and alerts: they render, and every metric in them is one that the parts export."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, generate_latest
from vllm.v1.kv_offload.base import OffloadingCounterMetadata

from autellix_engine.api.metrics import EngineMetrics
from autellix_engine.swap.metrics import definitions
from autellix_operator.api.names import Cluster
from autellix_operator.api.spec import parse_spec
from autellix_operator.desired.monitoring import monitoring_objects
from autellix_operator.metrics import Metrics
from autellix_operator.workqueue import WorkQueue
from support.chart import CHART, render
from support.memory_applier import cluster_resource
from support.prometheus import series
from support.running_controller import running_controller

_OURS = re.compile(r"\bautellix_[a-z_]+(?![:a-z_])|\bvllm:[a-z_]+")
ON = {"monitoring": {name: {"enabled": True} for name in ("podMonitor", "rules", "dashboard")}}


def dashboard() -> Any:
    return json.loads((CHART / "files" / "dashboard.json").read_text())


def rules() -> Any:
    return yaml.safe_load((CHART / "files" / "rules.yaml").read_text())


def of_one_cluster() -> Any:
    """The groups that the operator makes for a cluster."""
    spec = parse_spec(cluster_resource({"monitoring": {"alerts": "Enabled"}}))
    (made,) = monitoring_objects(Cluster("space", "demo", "uid"), spec)
    return made["spec"]["groups"]


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (variable["query"]["query"] for variable in dashboard()["templating"]["list"][1:])
    yield from (rule["expr"] for group in [*rules()["groups"], *of_one_cluster()] for rule in group["rules"])


async def exported() -> set[str]:
    """The names of all series that operator, controller and engine export."""
    of_engine = CollectorRegistry()
    EngineMetrics(of_engine)
    pages = [Metrics(WorkQueue(lambda: 0.0)).text().decode(), generate_latest(of_engine).decode()]
    async with running_controller("http://127.0.0.1:1", ready=False) as replica, replica.http.get("/metrics") as page:
        pages.append(await page.text())
    return _of_swapping().union(*map(series, pages))


def _of_swapping() -> set[str]:
    """vLLM exports these; a counter gets its ending from Prometheus' client."""
    metrics = definitions().items()
    return {f"{name}_total" if isinstance(kind, OffloadingCounterMetadata) else name for name, kind in metrics}


async def test_every_metric_of_dashboard_and_alerts_is_exported() -> None:
    named = {name for expression in expressions() for name in _OURS.findall(expression)}
    assert len(named) > 20
    assert named - await exported() == set()


def test_what_no_part_exports_would_be_found() -> None:
    page = "# TYPE a_seconds histogram\n# TYPE b_total counter\nb_total 1.0\n# TYPE c gauge\nc 0\n"
    assert series(page) == {"a_seconds_bucket", "a_seconds_sum", "a_seconds_count", "b_total", "c"}


def test_panels_have_titles_explanations_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_alerts_say_what_is_wrong_and_what_it_means() -> None:
    alerts = [rule for group in rules()["groups"] for rule in group["rules"] if "alert" in rule]
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    operations = (CHART.parents[1] / "docs" / "operations.md").read_text()
    for alert in alerts:
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert set(alert["annotations"]) == {"summary", "description"}
        assert f"`{alert['alert']}`" in operations, f"operations.md does not say what to do about {alert['alert']}"


def test_the_alerts_of_one_cluster_have_names_of_their_own_and_are_explained_too() -> None:
    names = {rule["alert"] for group in of_one_cluster() for rule in group["rules"]}
    assert names
    assert names.isdisjoint(rule.get("alert") for group in rules()["groups"] for rule in group["rules"])
    operations = (CHART.parents[1] / "docs" / "operations.md").read_text()
    assert all(f"`{name}`" in operations for name in names)


def test_they_are_part_of_the_release_where_wanted_and_their_templates_stay_as_they_are(program: Path) -> None:
    found = {each["kind"]: each for each in render(program, ON, release="rel")}
    assert found["PrometheusRule"]["spec"] == rules()
    assert json.loads(found["ConfigMap"]["data"]["autellix.json"]) == dashboard()
    assert found["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    selected = found["PodMonitor"]["spec"]["selector"]["matchLabels"]
    assert selected.items() <= found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    (endpoint,) = found["PodMonitor"]["spec"]["podMetricsEndpoints"]
    ports = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert endpoint["port"] in [port["name"] for port in ports]
    assert not {each["kind"] for each in render(program)} & {"PrometheusRule", "ConfigMap", "PodMonitor"}
