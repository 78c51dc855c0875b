"""Metrics of the scheduler on the engine's ``/metrics``, fed by what comes through the record channel."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from autellix_engine.records.interface import DECISION_SECONDS, SchedulerFigures
from autellix_wire.records import CallRecord, LoadReport

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)


class EngineMetrics:
    """The metrics with prefix ``autellix_engine_``. Labels are outcomes, reasons and levels of queues: few and fixed.

    What concerns calls that ended is counted from their records; everything else is shown as last reported.
    """

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
        self._recomputed = Counter(
            "autellix_engine_recomputed_tokens",
            "Tokens of calls that ended which were computed again after a preemption.",
            registry=registry,
        )
        self._reported = _Reported()
        registry.register(self._reported)

    def record(self, record: CallRecord) -> None:
        """A call ended."""
        level = str(record.level)
        self._calls.labels(record.outcome, level).inc()
        self._service.labels(level).observe(record.service_ms / 1000)
        self._wait.labels(level).observe(record.wait_ms / 1000)
        self._recomputed.inc(record.recomputed_tokens)

    def report(self, load: LoadReport, figures: SchedulerFigures) -> None:
        """The engine reported its load."""
        self._reported.load, self._reported.figures = load, figures


class _Reported(Collector):
    """Shows the newest report. Its counts are since the start of the scheduler, as Prometheus wants them."""

    def __init__(self) -> None:
        self.load = LoadReport(engine="", incarnation="", running=0, waiting=0)
        self.figures = SchedulerFigures()

    def collect(self) -> Iterator[Metric]:
        load, figures = self.load, self.figures
        yield _by_level("autellix_engine_running_calls", "Calls that run now, by level.", figures.running_by_level)
        yield _by_level("autellix_engine_waiting_calls", "Calls that wait now, by level.", load.waiting_by_level)
        yield GaugeMetricFamily(
            "autellix_engine_tokens_in_flight", "Prompt and generated tokens of running calls.", load.tokens_in_flight
        )
        yield GaugeMetricFamily(
            "autellix_engine_kv_usage_ratio", "Part of the KV cache in use.", load.kv_usage_percent / 100
        )
        yield GaugeMetricFamily(
            "autellix_engine_runnable_programs", "Programs with calls that run or wait now.", figures.runnable_programs
        )
        yield GaugeMetricFamily(
            "autellix_engine_worst_wait_ratio",
            "Largest ratio of wait to service among the calls that wait now, with those of their programs.",
            figures.worst_ratio,
        )
        preemptions = CounterMetricFamily(
            "autellix_engine_preemptions",
            "Calls that lost their slot, for a better call (policy) or because memory ran out (memory).",
            labels=["reason"],
        )
        preemptions.add_metric(["policy"], figures.preemptions_policy)
        preemptions.add_metric(["memory"], figures.preemptions_memory)
        yield preemptions
        yield CounterMetricFamily(
            "autellix_engine_promotions", "Calls that went to the best level because they starved.", figures.promotions
        )
        yield CounterMetricFamily(
            "autellix_engine_bound_breaches",
            "Promoted calls that waited for a slot for longer than the bound on waiting allows.",
            figures.bound_breaches,
        )
        yield CounterMetricFamily(
            "autellix_engine_dropped_records",
            "Records of calls that were lost between scheduler and stream.",
            load.dropped_records,
        )
        yield _decisions(figures)


def _by_level(name: str, text: str, counts: Iterable[int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["level"])
    for level, count in enumerate(counts):
        family.add_metric([str(level)], count)
    return family


def _decisions(figures: SchedulerFigures) -> HistogramMetricFamily:
    ends = (*(str(seconds) for seconds in DECISION_SECONDS), "+Inf")
    family = HistogramMetricFamily("autellix_engine_decision_seconds", "Time of the scheduler's decisions.")
    buckets = list(zip(ends, accumulate(figures.decisions), strict=True))
    family.add_metric([], buckets, figures.decision_seconds)
    return family
