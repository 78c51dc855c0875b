"""Load reports: how busy the engine is, what the scheduler did, and the state dump, for the API server's process."""

from collections.abc import Mapping
from typing import Final

from autellix_engine.policy import Core, snapshot
from autellix_engine.records.interface import RecordPublisher, SchedulerFigures
from autellix_engine.scheduler.steps import DecisionTimes
from autellix_wire.records import LoadReport

#: Least time between two load reports, unless the engine becomes busy or idle.
REPORT_MS: Final = 500.0


class Reporter:
    """Decides when a report is due and puts it together."""

    def __init__(self, core: Core, publisher: RecordPublisher) -> None:
        self.decisions: Final = DecisionTimes()
        self._core = core
        self._publisher = publisher
        self._sent_at = float("-inf")
        self._sent_busy = False

    def due(self, now: float, *, busy: bool) -> bool:
        """Whether the engine has become busy or idle, or the last report is old."""
        return busy != self._sent_busy or now - self._sent_at >= REPORT_MS

    def send(
        self,
        now: float,
        *,
        running: int,
        waiting: int,
        tokens_in_flight: int,
        kv_usage: float,
        malformed_contexts: Mapping[str, int],
    ) -> None:
        """Hands over a report. ``kv_usage`` is the part of the KV cache in use."""
        self._sent_at, self._sent_busy = now, running + waiting > 0
        core, counts = self._core, self._core.counts
        load = LoadReport(
            engine=self._publisher.engine,
            incarnation=self._publisher.incarnation,
            running=running,
            waiting=waiting,
            waiting_by_level=core.waiting_by_level(),
            tokens_in_flight=tokens_in_flight,
            kv_usage_percent=100 * kv_usage,
            dropped_records=self._publisher.dropped,
        )
        figures = SchedulerFigures(
            preemptions_policy=counts["preemptions_policy"],
            preemptions_memory=counts["preemptions_memory"],
            promotions=counts["promotions"],
            bound_breaches=counts["bound_breaches"],
            worst_ratio=core.worst_ratio(now),
            runnable_programs=core.programs.runnable,
            running_by_level=core.running_by_level(),
            decisions=tuple(self.decisions.counts),
            decision_seconds=self.decisions.seconds,
        )
        state = snapshot(core, now) | {"malformed_contexts": dict(malformed_contexts)}
        self._publisher.report(load, state, figures)
