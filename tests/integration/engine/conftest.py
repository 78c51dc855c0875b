"""The scheduler class with vLLM's real objects and no model; and one in-process engine for the tests that need one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from autellix_engine.scheduler import ProgramScheduler
from autellix_wire.records import CallRecord, LoadReport
from support.in_process_engine import InProcessEngine
from support.model_free import Driver, ManualClock, make_scheduler, vllm_config


class RecordingPublisher:
    """Keeps what the scheduler publishes."""

    engine = "engine-0"
    incarnation = "first"
    dropped = 0

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.reports: list[tuple[LoadReport, Mapping[str, object]]] = []
        self.ended: list[str] = []
        self.closed = False

    def next_seq(self) -> int:
        return len(self.records) + 1

    def publish(self, record: CallRecord) -> None:
        self.records.append(record)

    def report(self, load: LoadReport, state: Mapping[str, object]) -> None:
        self.reports.append((load, state))

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


@pytest.fixture
def make() -> Callable[..., Bench]:
    return Bench


@pytest.fixture(scope="session")
def make_bench() -> Callable[..., Bench]:
    """The same, for tests that make several."""
    return Bench


@pytest.fixture(params=[1, 2], ids=["sync", "async"])
def depth(request: pytest.FixtureRequest) -> int:
    """Outputs in flight: 1 as with synchronous, 2 as with asynchronous scheduling."""
    return int(request.param)


@pytest.fixture(scope="session")
def engine() -> Iterator[InProcessEngine]:
    """A real engine with the tiny model: two slots, 60 blocks of 32 tokens, PLAS with small bounds."""
    with InProcessEngine(
        slots=2,
        blocks=60,
        scheduling={"queue_bounds_ms": [200, 1_000], "min_run_ms": 0, "max_preemptions_per_step": 2},
    ) as running:
        yield running
