"""What the operator measures about itself."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from autellix_operator.api.names import Key
from autellix_operator.workqueue import WorkQueue

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ClusterReadiness(Collector):
    """What the condition Ready of each cluster says, as of its last reconcile here."""

    def __init__(self) -> None:
        self._clusters: dict[Key, tuple[bool, str]] = {}

    def set(self, key: Key, *, ready: bool, reason: str) -> None:
        """What a cluster is now."""
        self._clusters[key] = (ready, reason)

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another operator's."""
        self._clusters.pop(key, None)

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        family = GaugeMetricFamily(
            "autellix_operator_cluster_ready",
            "1 if the condition Ready of a cluster is True.",
            # A scraper sets `namespace` to the operator's own.
            labels=["cluster_namespace", "cluster", "reason"],
        )
        for key, (ready, reason) in self._clusters.items():
            family.add_metric([key.namespace, key.name, reason], float(ready))
        yield family


class Metrics:
    """Prometheus metrics with a registry of their own."""

    def __init__(self, queue: WorkQueue, leases: Callable[[], int] = lambda: 0) -> None:
        self._registry = CollectorRegistry()
        self.clusters = ClusterReadiness()
        self._registry.register(self.clusters)
        prefix = "autellix_operator"
        self._reconciles = Counter(
            f"{prefix}_reconciles", "Reconciles by outcome.", ["outcome"], registry=self._registry
        )
        self._seconds = Histogram(
            f"{prefix}_reconcile_seconds", "Duration of reconciles.", buckets=_BUCKETS, registry=self._registry
        )
        self._api_errors = Counter(
            f"{prefix}_api_errors",
            "Requests that the API server answered with an error, by HTTP status; 0 is no answer.",
            ["status"],
            registry=self._registry,
        )
        depth = Gauge(f"{prefix}_queue_depth", "Clusters that wait for a worker.", registry=self._registry)
        depth.set_function(lambda: queue.depth)
        longest = Gauge(
            f"{prefix}_longest_reconcile_seconds",
            "For how long the slowest reconcile now under way has been running.",
            registry=self._registry,
        )
        longest.set_function(lambda: queue.longest_active)

        held = Gauge(f"{prefix}_leases", "Leases that this operator holds.", registry=self._registry)
        held.set_function(leases)

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Counts a reconcile."""
        self._reconciles.labels(outcome).inc()
        self._seconds.observe(seconds)

    def api_error(self, status: int) -> None:
        """Counts a failed request."""
        self._api_errors.labels(str(status)).inc()

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)
