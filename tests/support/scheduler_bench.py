"""The scheduler class under test with everything around it: no model, a clock that is told, records that are kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autellix_engine.records.interface import SchedulerFigures
from autellix_engine.scheduler import ProgramScheduler
from autellix_wire.records import CallRecord, LoadReport
from support.model_free import Driver, ManualClock, make_scheduler, vllm_config


class RecordingPublisher:
    """Keeps what the scheduler publishes."""

    engine = "engine-0"
    incarnation = "first"
    dropped = 0

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.reports: list[tuple[LoadReport, Mapping[str, Any]]] = []
        self.figures = SchedulerFigures()
        self.ended: list[str] = []
        self.closed = False

    def next_seq(self) -> int:
        return len(self.records) + 1

    def publish(self, record: CallRecord) -> None:
        self.records.append(record)

    def report(self, load: LoadReport, state: Mapping[str, Any], figures: SchedulerFigures) -> None:
        self.reports.append((load, state))
        self.figures = figures

    def ended_programs(self) -> Sequence[str]:
        ended, self.ended = self.ended, []
        return ended

    def close(self) -> None:
        self.closed = True

    def of(self, call: str) -> CallRecord:
        """The one record of a call."""
        (record,) = [record for record in self.records if record.call == call]
        return record


class Bench:
    """A scheduler under test, its driver, clock and publisher."""

    def __init__(self, *, depth: int = 1, step_ms: float = 10.0, **config: Any) -> None:
        self.clock = ManualClock()
        self.publisher = RecordingPublisher()
        self.scheduler = make_scheduler(
            ProgramScheduler,
            vllm_config(asynchronous=depth > 1, **config),
            clock=self.clock,
            publisher=self.publisher,
        )
        self.core = self.scheduler.core
        self.driver = Driver(self.scheduler, self.clock, depth=depth, step_ms=step_ms)

    def add(self, *requests: Any) -> None:
        for request in requests:
            self.scheduler.add_request(request)

    def steps(self, count: int) -> None:
        """Runs steps, and checks after each that core and vLLM agree on every request."""
        for _ in range(count):
            self.driver.step()
            self.check()

    def run(self) -> None:
        """Runs to the end of all requests, checked."""
        for _ in range(5_000):
            if not self.scheduler.has_requests():
                return
            self.steps(1)
        raise AssertionError("requests are left")

    def check(self) -> None:
        self.core.check_integrity()
        scheduler = self.scheduler
        running = {call.key for call in self.core.running()}
        waiting = {call.key for call in self.core.waiting()}
        assert running == {request.request_id for request in scheduler.running}
        queued = [*scheduler.waiting, *scheduler.kv_holding_waiting]
        assert waiting == {request.request_id for request in queued}
        assert len(queued) == len(scheduler.waiting) + len(scheduler.kv_holding_waiting)
        for request in scheduler.running:
            assert request.priority == self.core.call(request.request_id).level


MakeBench = Callable[..., Bench]
