"""Metrics of the controller, in the Prometheus format, all with the prefix ``autellix_controller_``.

Labels are bounded whatever clients send: paths and reasons from our own lists, engines from discovery.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.fleet import Fleet
from autellix_controller.routing.router import Router
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import ProcessTable
from autellix_controller.tally import Tally

_PREFIX: Final = "autellix_controller_"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_ADDED: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30)
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PROGRAM_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 10800)
_PROGRAM_CALLS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class CallMetrics:
    """What is counted call by call."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(f"{_PREFIX}calls", "Calls that ended.", ["path", "status"], registry=registry)
        self._seconds = Tally(f"{_PREFIX}call_seconds", "From a call's arrival to its end.", _SECONDS, labels=["path"])
        first_byte = Tally(
            f"{_PREFIX}first_byte_seconds", "From a call's arrival to the first byte of an engine's answer.", _SECONDS
        )
        added = Tally(
            f"{_PREFIX}added_seconds",
            "From a call's arrival to its first sending to an engine, the body's transfer included, waiting in the "
            "admission queue not.",
            _ADDED,
        )
        for tally in (self._seconds, first_byte, added):
            registry.register(tally)
        self._first_byte, self._added = first_byte.of(), added.of()
        self._placed = Counter(
            f"{_PREFIX}placements", "Attempts by why the engine was chosen.", ["route"], registry=registry
        )
        self._retries = Counter(f"{_PREFIX}retries", "Second attempts on another engine.", registry=registry)
        # Looking a child up by its labels costs more than counting.
        self._calls_of = functools.cache(lambda path, status: self._calls.labels(path, str(status)))
        self._placed_as = functools.cache(self._placed.labels)

    def ended(self, path: str, status: int, seconds: float) -> None:
        """A call ended. ``path`` is one of the gateway's routes."""
        self._calls_of(path, status).inc()
        self._seconds.of(path).add(seconds)

    def sent(self, seconds: float) -> None:
        """A call was sent to an engine for the first time, after so long in the controller."""
        self._added.add(seconds)

    def first_byte(self, seconds: float) -> None:
        """An engine began to answer so long after the call arrived."""
        self._first_byte.add(seconds)

    def placed(self, reason: str, *, again: bool) -> None:
        """An engine was chosen; ``again`` after another one failed."""
        self._placed_as(reason).inc()
        if again:
            self._retries.inc()


class RequestMetrics:
    """What is counted of requests that are no calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            f"{_PREFIX}requests",
            "Requests other than calls by route (a path of no route: other; no proper HTTP: none), method and status.",
            ["path", "method", "status"],
            registry=registry,
        )

    def ended(self, template: str | None, method: str | None, status: int) -> None:
        """A request ended. ``template`` is one of our own routes, None if it asked for none; ``method`` is what the
        client sent, None if that was no HTTP."""
        if method is None:
            self._requests.labels("none", "none", str(status)).inc()
        else:
            known = method if method in _METHODS else "other"
            self._requests.labels(template or "other", known, str(status)).inc()


class ProgramMetrics:
    """What is counted program by program."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            f"{_PREFIX}program_seconds",
            "From a program's opening to the end of its last call, of programs that their owner ended or that expired.",
            buckets=_PROGRAM_SECONDS,
            registry=registry,
        )
        self._calls = Histogram(
            f"{_PREFIX}program_calls", "Calls of these programs.", buckets=_PROGRAM_CALLS, registry=registry
        )

    def ended(self, entry: ProgramEntry) -> None:
        """A program was ended by its owner, or expired."""
        if entry.calls:
            self._seconds.observe(max(0, entry.last_completion_ms - entry.created_ms) / 1000)
            self._calls.observe(entry.calls)


class QueueMetrics:
    """What is counted where calls wait or are refused."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait = Histogram(
            f"{_PREFIX}queue_seconds",
            "Time in the admission queue, of calls that had to wait.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._refused = Counter(
            f"{_PREFIX}refused_calls", "Calls answered with 429 by the bound they met.", ["bound"], registry=registry
        )

    def waited(self, seconds: float) -> None:
        """A call left the queue, to an engine or not."""
        self._wait.observe(seconds)

    def refused(self, bound: str) -> None:
        """A call was refused. ``bound`` is the name of a setting or of a limit of keys."""
        self._refused.labels(bound).inc()


class StateCollector(Collector):
    """What is read at the moment of a scrape."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        table: ProcessTable,
        router: Router,
        accounting: Accounting,
        running: Callable[[], int],
        queued: Callable[[], int],
        held: Callable[[], int],
        body_bytes: Callable[[], int],
    ) -> None:
        self._fleet, self._table, self._router, self._accounting = fleet, table, router, accounting
        self._running, self._queued, self._held, self._body_bytes = running, queued, held, body_bytes

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        yield from self._engines()
        yield from self._process_table()
        yield GaugeMetricFamily(f"{_PREFIX}running_calls", "Calls being served.", value=self._running())
        yield GaugeMetricFamily(f"{_PREFIX}queued_calls", "Calls waiting for an engine here.", value=self._queued())
        yield GaugeMetricFamily(
            f"{_PREFIX}held_calls", "Calls of these for which no engine serves at all.", value=self._held()
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}body_bytes", "Request bodies that are held now, bytes.", value=self._body_bytes()
        )
        yield CounterMetricFamily(f"{_PREFIX}pin_moves", "Pins set or moved here.", value=self._router.pin_moves)
        lengths = CounterMetricFamily(
            f"{_PREFIX}prompt_lengths",
            "Prompts compared with locality_threshold_tokens, by what told their length.",
            labels=["by"],
        )
        for told_by, count in self._router.lengths.items():
            lengths.add_metric([told_by], count)
        yield lengths
        records = CounterMetricFamily(
            f"{_PREFIX}call_records", "Engines' call records by what became of them.", labels=["result"]
        )
        records.add_metric(["applied"], self._accounting.applied)
        records.add_metric(["left_to_sender"], self._accounting.left_to_sender)
        records.add_metric(["lost"], self._fleet.records_lost)
        yield records
        yield CounterMetricFamily(
            f"{_PREFIX}estimated_calls",
            "Calls charged by the time they ran: their engine keeps no records.",
            value=self._accounting.estimated,
        )

    def _engines(self) -> Iterable[Metric]:
        in_flight = GaugeMetricFamily(
            f"{_PREFIX}engine_calls", "Calls of this replica on an engine.", labels=["engine"]
        )
        available = GaugeMetricFamily(
            f"{_PREFIX}engine_available", "1 if the engine is in rotation.", labels=["engine"]
        )
        programs = GaugeMetricFamily(
            f"{_PREFIX}engine_programs", "Live programs that are pinned to an engine.", labels=["engine"]
        )
        pins = self._table.pins()
        for engine in self._fleet:
            programs.add_metric([engine.name], pins.get(engine.name, 0))
            in_flight.add_metric([engine.name], engine.in_flight)
            available.add_metric([engine.name], float(engine.in_rotation))
        yield in_flight
        yield available
        yield programs

    def _process_table(self) -> Iterable[Metric]:
        health = self._table.health()
        for name, text, value in (
            ("programs", "Live programs in the process table.", self._table.count()),
            ("table_loaded", "1 once the process table was read completely.", float(health.loaded)),
            ("table_connected", "1 if the last contact with the table's store succeeded.", float(health.connected)),
            ("table_watching", "1 if changes in the table's store are followed.", float(health.watching)),
            ("table_revision", "Revision of the store that the table has reached.", health.revision),
            ("table_silent_seconds", "Since the table's store last said anything.", health.seconds_since_reply),
            ("table_pending_updates", "Programs whose accounting waits to be written.", health.pending_updates),
            (
                "table_oldest_update_seconds",
                "For how long the oldest accounting that is not written waits; 0 if none does.",
                health.oldest_update_seconds,
            ),
            ("table_unreadable_entries", "Entries that are damaged or of a newer version.", health.unreadable),
            ("live_replicas", "Controller replicas known to be alive.", len(self._table.live_replicas())),
        ):
            yield GaugeMetricFamily(f"{_PREFIX}{name}", text, value=value)


def new_registry() -> CollectorRegistry:
    """A registry with the figures of the process itself."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry
