"""Metrics of the scheduler on the engine's ``/metrics``, fed by what comes through the record channel."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from autellix_wire.records import CallRecord, LoadReport

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)


class EngineMetrics:
    """The metrics with prefix ``autellix_engine_``. Labels are outcomes and levels of queues: both few and fixed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "autellix_engine_calls",
            "Calls that ended, by outcome and by the level of the queue in which they ended.",
            ["outcome", "level"],
            registry=registry,
        )
        self._service = Histogram(
            "autellix_engine_call_service_seconds",
            "Executor time of calls that ended, by level.",
            ["level"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._wait = Histogram(
            "autellix_engine_call_wait_seconds",
            "Time that calls that ended were ready and not running, by level.",
            ["level"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._preemptions = Counter(
            "autellix_engine_preemptions", "Preemptions of calls that ended.", registry=registry
        )
        self._promotions = Counter(
            "autellix_engine_promotions", "Promotions of calls that ended, against starvation.", registry=registry
        )
        self._recomputed = Counter(
            "autellix_engine_recomputed_tokens",
            "Tokens of calls that ended which were computed again after a preemption.",
            registry=registry,
        )
        self._running = Gauge("autellix_engine_running_calls", "Calls that run now.", registry=registry)
        self._waiting = Gauge(
            "autellix_engine_waiting_calls", "Calls that wait now, by level.", ["level"], registry=registry
        )
        self._kv_usage = Gauge("autellix_engine_kv_usage_ratio", "Part of the KV cache in use.", registry=registry)
        self._dropped = Gauge(
            "autellix_engine_dropped_records",
            "Records lost between scheduler and stream since the engine started.",
            registry=registry,
        )

    def record(self, record: CallRecord) -> None:
        """A call ended."""
        level = str(record.level)
        self._calls.labels(record.outcome, level).inc()
        self._service.labels(level).observe(record.service_ms / 1000)
        self._wait.labels(level).observe(record.wait_ms / 1000)
        self._preemptions.inc(record.preemptions)
        self._promotions.inc(record.promotions)
        self._recomputed.inc(record.recomputed_tokens)

    def load(self, report: LoadReport) -> None:
        """The engine reported its load."""
        self._running.set(report.running)
        for level, waiting in enumerate(report.waiting_by_level):
            self._waiting.labels(str(level)).set(waiting)
        self._kv_usage.set(report.kv_usage_percent / 100)
        self._dropped.set(report.dropped_records)
