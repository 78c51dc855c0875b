"""What the operator measures about itself."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from autellix_operator.workqueue import WorkQueue

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Prometheus metrics with a registry of their own."""

    def __init__(self, queue: WorkQueue, leases: Callable[[], int] = lambda: 0) -> None:
        self._registry = CollectorRegistry()
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
