"""Objects of the Prometheus Operator: what is scraped, and what wakes somebody up."""

from typing import Any, Final

from autellix_operator.api.conditions import Reason
from autellix_operator.api.names import ENGINE_KEY, Cluster, Component
from autellix_operator.api.spec import Spec

_API: Final = "monitoring.coreos.com/v1"
#: Reasons of a cluster that is not ready and needs no help.
_PASSING: Final = "|".join((Reason.STARTING, Reason.UPDATING, Reason.SCALED_TO_ZERO))


def monitoring_objects(cluster: Cluster, spec: Spec) -> list[dict[str, Any]]:
    """The monitors and the alerts that the spec wants."""
    wanted = spec.monitoring
    found = []
    if wanted.monitors == "Enabled":
        found += [_controllers(cluster, spec), _engines(cluster, spec)]
        if spec.process_table.etcd.managed is not None:
            found.append(_etcd(cluster, spec))
    if wanted.alerts == "Enabled":
        found.append(_alerts(cluster, spec))
    return found


def _controllers(cluster: Cluster, spec: Spec) -> dict[str, Any]:
    endpoint = {"port": "http", "path": "/metrics", **_interval(spec)}
    # The clients' Service: of all with the component's labels it is the only one.
    body = {"selector": {"matchLabels": cluster.selector(Component.CONTROLLER)}, "endpoints": [endpoint]}
    return _object(cluster, spec, Component.CONTROLLER, "ServiceMonitor", body)


def _engines(cluster: Cluster, spec: Spec) -> dict[str, Any]:
    # Engines ask for their key on every path but /health.
    key = {"type": "Bearer", "credentials": {"name": cluster.engine_key_secret, "key": ENGINE_KEY}}
    return _pod_monitor(cluster, spec, Component.ENGINE, {"port": "http", "path": "/metrics", "authorization": key})


def _etcd(cluster: Cluster, spec: Spec) -> dict[str, Any]:
    return _pod_monitor(cluster, spec, Component.ETCD, {"port": "metrics", "path": "/metrics"})


def _pod_monitor(cluster: Cluster, spec: Spec, component: Component, endpoint: dict[str, Any]) -> dict[str, Any]:
    body = {
        "selector": {"matchLabels": cluster.selector(component)},
        "podMetricsEndpoints": [{**endpoint, **_interval(spec)}],
    }
    return _object(cluster, spec, component, "PodMonitor", body)


def _alerts(cluster: Cluster, spec: Spec) -> dict[str, Any]:
    # What a ServiceMonitor puts on each series.
    ours = f'{{namespace="{cluster.namespace}",service="{cluster.service}"}}'
    who = f"{cluster.namespace}/{cluster.name}"
    lost = ours.replace("}", ',result="lost"}')
    # What the operator says; silent where the operator is not scraped.
    told = f'{{cluster_namespace="{cluster.namespace}",cluster="{cluster.name}",reason!~"{_PASSING}"}}'
    rules = [
        _alert(
            "AutellixClusterNotReady",
            f"max(autellix_operator_cluster_ready{told}) < 1",
            "5m",
            "critical",
            f"Cluster {who} is not ready, and will not be without help.",
        ),
        _alert(
            "AutellixClusterNoEngine",
            f"max(sum by (pod) (autellix_controller_engine_available{ours})) < 1",
            "5m",
            "critical",
            f"Cluster {who} has no engine in rotation: calls are held or answered with 503.",
        ),
        _alert(
            "AutellixClusterCallsHeld",
            f"sum(autellix_controller_held_calls{ours}) > 0",
            "5m",
            "critical",
            f"Calls to {who} have waited for an engine for five minutes, and none has come.",
        ),
        _alert(
            "AutellixClusterProcessTableAway",
            f"max by (pod) (autellix_controller_table_connected{ours}) < 1",
            "5m",
            "warning",
            f"A controller of {who} does not reach the process table: it serves from memory.",
        ),
        _alert(
            "AutellixClusterCallRecordsLost",
            f"sum(increase(autellix_controller_call_records_total{lost}[15m])) > 0",
            "0m",
            "warning",
            f"Controllers of {who} missed call records: some service is not accounted for.",
        ),
    ]
    body = {"groups": [{"name": f"autellix.{cluster.namespace}.{cluster.name}", "rules": rules}]}
    return _object(cluster, spec, Component.CONTROLLER, "PrometheusRule", body)


def _alert(name: str, expression: str, lasting: str, severity: str, summary: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }


def _interval(spec: Spec) -> dict[str, str]:
    return {"interval": f"{spec.monitoring.interval_seconds}s"}


def _object(cluster: Cluster, spec: Spec, component: Component, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    metadata = cluster.metadata(component, cluster.child(component))
    # Ours win: the operator finds its objects by them.
    metadata["labels"] = {**spec.monitoring.labels, **metadata["labels"]}
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": body}
