"""Alerts, recording rules and the dashboard's queries, evaluated by Prometheus' own rule engine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autellix_operator.api.names import Cluster
from autellix_operator.api.spec import parse_spec
from autellix_operator.desired.monitoring import monitoring_objects
from support.chart import CHART
from support.memory_applier import cluster_resource
from support.rules import STEP_SECONDS, evaluate

RULES = CHART / "files" / "rules.yaml"
CONTROLLER = 'namespace="space",pod="demo-controller-5d4f8-x7k2p"'
ENGINE = 'namespace="space",pod="demo-engine-7b9c5-p4m8t"'
OPERATOR = 'namespace="autellix-system",pod="autellix-operator-66c9-b2q7z"'
#: What a ServiceMonitor and what a PodMonitor put on the series of a cluster's controllers.
SERVICE = f'{CONTROLLER},service="demo"'
MINUTES = 60
ALWAYS = f"x{MINUTES * 60 // STEP_SECONDS}"


def named(metric: str, pod: str, **labels: str) -> str:
    return f"{metric}{{{','.join([pod, *(f'{name}={value!r}' for name, value in labels.items())])}}}".replace("'", '"')


def available(*values: str, pod: str = CONTROLLER) -> dict[str, str]:
    """Engines as a controller sees them."""
    return {
        named("autellix_controller_engine_available", pod, engine=f"engine-{number}"): value
        for number, value in enumerate(values)
    }


def calls(failed: int, well: int) -> dict[str, str]:
    """So many calls between two scrapes."""
    name = "autellix_controller_calls_total"
    return {
        named(name, CONTROLLER, path="/v1/responses", status="503"): f"0+{failed}{ALWAYS}",
        named(name, CONTROLLER, path="/v1/responses", status="200"): f"0+{well}{ALWAYS}",
    }


def of(metric: str, values: str, pod: str = CONTROLLER, **labels: str) -> dict[str, str]:
    return {named(metric, pod, **labels): values}


def ready(reason: str, values: str) -> dict[str, str]:
    """What the operator says of a cluster."""
    return of(
        "autellix_operator_cluster_ready",
        values,
        OPERATOR,
        cluster_namespace="space",
        cluster="demo",
        reason=reason,
    )


EVICTED = "autellix_engine_swap_evicted_blocks_total"
RECORDS = "autellix_controller_call_records_total"
RECONCILES = "autellix_operator_reconciles_total"
BEHIND = "autellix_controller_table_oldest_update_seconds"
UNREADABLE = "autellix_controller_table_unreadable_entries"
#: A counter that counts once, five minutes after the start.
ONCE = "0x9 1x110"

FIRES = [
    ("AutellixNoEngine", available(f"0{ALWAYS}", f"0{ALWAYS}"), 120, 3600),
    ("AutellixNoEngine", available("1x9 0x19 1x99"), 420, 870),
    ("AutellixCallsHeld", of("autellix_controller_held_calls", "0x9 3x29 0x99"), 630, 1200),
    ("AutellixCallsFail", calls(6, 100), 330, 3600),
    ("AutellixBoundOnWaitingBroken", of("autellix_engine_bound_breaches_total", ONCE, ENGINE), 300, 1140),
    ("AutellixHostPoolTooSmall", of(EVICTED, f"0+1{ALWAYS}", ENGINE, program="active"), 1830, 3600),
    ("AutellixProcessTableAway", of("autellix_controller_table_connected", "1x9 0x19 1x99"), 420, 870),
    ("AutellixProcessTableUnreadable", of(UNREADABLE, f"1{ALWAYS}"), 900, 3600),
    ("AutellixAccountingBehind", of(BEHIND, f"61{ALWAYS}"), 300, 3600),
    ("AutellixCallRecordsLost", of(RECORDS, ONCE, result="lost"), 300, 1140),
    ("AutellixNotReady", ready("CrashLoop", "0x39 stale"), 300, 1170),
    ("AutellixNotReady", ready("Unschedulable", "0x5 stale") | ready("CrashLoop", "_x6 0x94 stale"), 300, 3000),
    ("AutellixOperatorFails", of(RECONCILES, f"0+1{ALWAYS}", OPERATOR, outcome="api-error"), 930, 3600),
    ("AutellixOperatorStuck", of("autellix_operator_longest_reconcile_seconds", "0x9 301x9 0x99", OPERATOR), 300, 570),
]
SILENT = [
    ("one engine of two serves", available(f"0{ALWAYS}", f"1{ALWAYS}")),
    ("an engine was replaced within a minute", available("1x9 0x2 1x99")),
    ("no engine is listed", {}),
    ("a call was held for four minutes", of("autellix_controller_held_calls", "0x9 1x8 0x99")),
    ("one call in twenty fails", calls(5, 95)),
    ("nobody calls", calls(0, 0)),
    ("no bound was broken", of("autellix_engine_bound_breaches_total", f"7{ALWAYS}", ENGINE)),
    ("blocks of ended programs go", of(EVICTED, f"0+9{ALWAYS}", ENGINE, program="ended")),
    ("blocks of live programs went for a while", of(EVICTED, "0+9x9 90x110", ENGINE, program="active")),
    ("etcd was away for a minute", of("autellix_controller_table_connected", "1x9 0x2 1x99")),
    ("an entry was unreadable for ten minutes", of(UNREADABLE, "1x19 0x99")),
    ("accounting was behind for three minutes", of(BEHIND, "61x5 0x99")),
    ("accounting waits for a minute", of(BEHIND, f"60{ALWAYS}")),
    ("records were applied", of(RECORDS, f"0+9{ALWAYS}", result="applied")),
    ("a large model is loaded", ready("Starting", f"0{ALWAYS}")),
    ("an update takes its time", ready("Updating", f"0{ALWAYS}")),
    ("no engine is wanted", ready("ScaledToZero", f"0{ALWAYS}")),
    ("a container crashed once", ready("CrashLoop", "0x5 stale") | ready("Available", "_x6 1x99")),
    ("reconciles met conflicts", of(RECONCILES, f"0+9{ALWAYS}", OPERATOR, outcome="conflict")),
    ("reconciles failed for a moment", of(RECONCILES, "0+1x3 4x110", OPERATOR, outcome="error")),
    ("a reconcile takes its time", of("autellix_operator_longest_reconcile_seconds", f"299{ALWAYS}", OPERATOR)),
]


@pytest.mark.parametrize(("name", "series", "since", "last"), FIRES)
def test_an_alert_fires_when_it_should_and_no_other_does(
    name: str, series: dict[str, str], since: int, last: int
) -> None:
    (alert,) = evaluate([RULES], series, MINUTES).alerts
    assert (alert.name, alert.since, alert.last) == (name, since, last)
    texts = " ".join(alert.annotations.values())
    assert "<no value>" not in texts
    assert "in  " not in texts, "a label that the expression dropped"


@pytest.mark.parametrize("series", [series for _, series in SILENT], ids=[what for what, _ in SILENT])
def test_what_is_no_trouble_or_passes_wakes_nobody(series: dict[str, str]) -> None:
    assert evaluate([RULES], series, MINUTES).alerts == []


def test_every_alert_of_the_chart_was_seen_firing() -> None:
    alerts = {rule.get("alert") for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert {name for name, *_ in FIRES} == alerts - {None}


def test_recording_rules_add_up_the_pods_of_a_cluster_and_of_no_other() -> None:
    series = {
        'autellix_engine_runnable_programs{namespace="space",pod="demo-engine-7b9c5-p4m8t"}': f"3{ALWAYS}",
        'autellix_engine_runnable_programs{namespace="space",pod="demo-engine-7b9c5-q5n9v"}': f"4{ALWAYS}",
        'autellix_engine_runnable_programs{namespace="space",pod="demo-engine-2-engine-7b9c5-q5n9v"}': f"9{ALWAYS}",
        'autellix_engine_worst_wait_ratio{namespace="space",pod="demo-engine-7b9c5-p4m8t"}': f"1.5{ALWAYS}",
        'autellix_engine_worst_wait_ratio{namespace="space",pod="demo-engine-7b9c5-q5n9v"}': f"2.5{ALWAYS}",
        'autellix_controller_held_calls{namespace="space",pod="demo-controller-5d4f8-x7k2p"}': f"1{ALWAYS}",
        'autellix_controller_held_calls{namespace="space",pod="demo-controller-5d4f8-y8m3q"}': f"2{ALWAYS}",
    }
    names = ("runnable_programs:sum", "worst_wait_ratio:max", "held_calls:sum")
    queries = [f'autellix_cluster:{name}{{namespace="space", cluster="demo"}}' for name in names]
    outcome = evaluate([RULES], series, 2, queries)
    assert [[sample.value for sample in found] for found in outcome.queries] == [[7], [2.5], [3]]


def of_one_cluster(folder: Path) -> Path:
    """The alerts that the operator makes for a cluster, as a file of Prometheus."""
    spec = parse_spec(cluster_resource({"monitoring": {"alerts": "Enabled"}}))
    (made,) = monitoring_objects(Cluster("space", "demo", "uid"), spec)
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(made["spec"]))
    return file


def lost(pod: str, values: str) -> dict[str, str]:
    return of(RECORDS, values, pod, result="lost")


@pytest.mark.parametrize(
    ("name", "series", "since", "last"),
    [
        ("AutellixClusterNotReady", ready("CrashLoop", "0x39 stale"), 300, 1170),
        ("AutellixClusterNoEngine", available(f"0{ALWAYS}", f"0{ALWAYS}", pod=SERVICE), 300, 3600),
        ("AutellixClusterCallsHeld", of("autellix_controller_held_calls", "0x9 3x29 0x99", SERVICE), 600, 1170),
        (
            "AutellixClusterProcessTableAway",
            of("autellix_controller_table_connected", "1x9 0x19 1x99", SERVICE),
            600,
            870,
        ),
        ("AutellixClusterCallRecordsLost", lost(SERVICE, ONCE), 300, 1140),
    ],
)
def test_an_alert_of_one_cluster_fires_for_it_alone(
    name: str, series: dict[str, str], since: int, last: int, tmp_path: Path
) -> None:
    file = of_one_cluster(tmp_path)
    (alert,) = evaluate([file], series, MINUTES).alerts
    assert (alert.name, alert.since, alert.last) == (name, since, last)
    others = {re.sub(r'\b(service|cluster)="demo"', r'\1="other"', key): values for key, values in series.items()}
    assert evaluate([file], others, MINUTES).alerts == []


#: Labels that a metric has of its own, where the dashboard asks for them.
LABELS = {
    "autellix_controller_calls_total": {"path": "/v1/responses", "status": "500"},
    "autellix_controller_call_records_total": {"result": "lost"},
    "autellix_controller_call_seconds": {"path": "/v1/responses"},
    "autellix_controller_engine_available": {"engine": "demo-engine-7b9c5-p4m8t"},
    "autellix_controller_placements_total": {"route": "pinned"},
    "autellix_controller_refused_calls_total": {"bound": "max_calls"},
    "autellix_engine_call_service_seconds": {"level": "0"},
    "autellix_engine_call_wait_seconds": {"level": "0"},
    "autellix_engine_preemptions_total": {"reason": "quantum"},
    "autellix_engine_swap_evicted_blocks_total": {"program": "active"},
    "autellix_engine_swap_pool_blocks": {"state": "free"},
    "autellix_engine_swap_resumed_tokens_total": {"found": "host"},
    "autellix_engine_swap_transfers_total": {"direction": "in", "path": "copy"},
    "autellix_engine_waiting_calls": {"level": "0"},
}
_METRIC = re.compile(r"\bautellix_(?:controller|engine)_[a-z_]+")


def panels() -> Iterator[tuple[str, str, str]]:
    """Title, query and legend of each line of the dashboard, of the cluster `demo`."""
    for panel in json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$namespace", "space").replace("$cluster", "demo")
            yield panel["title"], query.replace("$__rate_interval", "2m"), target["legendFormat"]


def every_metric(queries: list[str], cluster: str) -> dict[str, str]:
    series = {}
    for metric in {name for query in queries for name in _METRIC.findall(query)}:
        pod = (CONTROLLER if "_controller_" in metric else ENGINE).replace('"demo-', f'"{cluster}-')
        labels: dict[str, Any] = LABELS.get(metric.removesuffix("_bucket"), {})
        for bound in ("0.5", "1", "+Inf") if metric.endswith("_bucket") else ("",):
            series[named(metric, pod, **labels, **({"le": bound} if bound else {}))] = "0+1x20"
    return series


def test_every_line_of_the_dashboard_has_data_with_the_labels_that_it_is_called_after() -> None:
    lines = list(panels())
    queries = [query for _, query, _ in lines]
    outcome = evaluate([RULES], every_metric(queries, "demo"), 10, queries)
    for (title, _, legend), samples in zip(lines, outcome.queries, strict=True):
        assert samples, title
        wanted = set(re.findall(r"\{\{(\w+)\}\}", legend))
        assert all(wanted <= sample.labels.keys() for sample in samples), title


def test_the_dashboard_shows_nothing_of_a_cluster_whose_name_begins_alike() -> None:
    queries = [query for _, query, _ in panels()]
    for other in ("demo-2", "demo-engine"):
        assert not any(evaluate([], every_metric(queries, other), 10, queries).queries)


def test_a_rule_that_is_not_valid_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "rules.yaml"
    broken.write_text("groups: [{name: a, rules: [{alert: A, expr: 'sum(b'}]}]\n")
    with pytest.raises(ValueError, match="parse error"):
        evaluate([broken], {}, 1)
