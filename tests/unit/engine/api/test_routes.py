"""The engine's own routes over a hub, without vLLM."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from autellix_engine.api.metrics import EngineMetrics
from autellix_engine.api.routes import EngineApi, router
from autellix_engine.records.channel import SchedulerUnreachable
from autellix_engine.records.hub import RecordHub
from autellix_engine.records.interface import DECISION_SECONDS, SchedulerFigures
from autellix_wire import records as wire
from support.call_records import call_record


class Engine:
    """A hub with the API in front, and a scheduler that does what the test says."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.hub = RecordHub("plas", EngineMetrics(self.registry))
        self.hub.announce("engine-0", "abc")
        self.ended: list[str] = []
        self.reachable = True
        app = FastAPI()
        app.include_router(router)
        # The server is about to stop from the beginning: streams end after what there is.
        app.state.autellix = EngineApi(self.hub, self._end_program, stopping=lambda: True)
        self.client = TestClient(app)

    async def _end_program(self, program: str) -> None:
        if not self.reachable:
            raise SchedulerUnreachable("The scheduler takes no commands at the moment.")
        self.ended.append(program)

    def add(self, seq: int, level: int = 0, outcome: wire.Outcome = "finished") -> None:
        record = call_record(
            seq,
            engine="engine-0",
            incarnation="abc",
            outcome=outcome,
            service_ms=1500.0,
            wait_ms=20.0,
            level=level,
        )
        self.hub.add(record, wire.encode(record))

    def load(self, running: int, waiting_by_level: tuple[int, ...], dropped: int = 0, **figures: Any) -> None:
        report = wire.LoadReport(
            engine="engine-0",
            incarnation="abc",
            running=running,
            waiting=sum(waiting_by_level),
            waiting_by_level=waiting_by_level,
            tokens_in_flight=77,
            kv_usage_percent=12.5,
            dropped_records=dropped,
        )
        self.hub.update(report, b'{"programs":[]}', SchedulerFigures(**figures))

    def stream(self, after: str | None = None) -> list[wire.Message]:
        response = self.client.get(wire.RECORDS_PATH, params={} if after is None else {"after": after})
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("application/x-ndjson")
        return [wire.decode(line) for line in response.content.splitlines()]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    with engine.client:
        yield engine


def test_the_stream_goes_on_after_the_cursor(engine: Engine) -> None:
    for seq in (1, 2, 3):
        engine.add(seq)
    hello, *messages = engine.stream()
    assert hello == wire.Hello(engine="engine-0", incarnation="abc", policy="plas", next_seq=4)
    assert [message.seq for message in messages if isinstance(message, wire.CallRecord)] == [1, 2, 3]
    rest = engine.stream("abc:2")
    assert [message.seq for message in rest if isinstance(message, wire.CallRecord)] == [3]
    assert any(isinstance(message, wire.Gap) for message in engine.stream("former:7"))


@pytest.mark.parametrize(
    ("after", "said"), [("x", "is not <incarnation>:<sequence number>"), ("abc:1", "does not exist yet")]
)
def test_a_wrong_cursor_is_a_400_in_openais_shape(engine: Engine, after: str, said: str) -> None:
    response = engine.client.get(wire.RECORDS_PATH, params={"after": after})
    assert response.status_code == 400
    error = response.json()["error"]
    assert said in error["message"]
    assert (error["param"], error["code"]) == ("after", "invalid_cursor")


def test_the_state_shows_load_records_and_the_schedulers_dump(engine: Engine) -> None:
    before = engine.client.get(wire.STATE_PATH).json()
    assert (before["load"]["running"], before["load"]["waiting"], before["scheduler"]) == (0, 0, {})
    engine.add(1)
    engine.load(2, (1, 0))
    state = engine.client.get(wire.STATE_PATH).json()
    assert state == {
        "engine": "engine-0",
        "incarnation": "abc",
        "policy": "plas",
        "load": json.loads(wire.encode(engine.hub.load)),
        "records": {"oldest_seq": 1, "last_seq": 1, "readers": 0},
        "scheduler": {"programs": []},
    }
    assert state["load"]["running"] == 2


def test_a_program_that_ended_is_passed_on_to_the_scheduler(engine: Engine) -> None:
    for _ in range(2):
        assert engine.client.delete(f"{wire.PROGRAMS_PATH}/p-1").status_code == 204
    assert engine.ended == ["p-1", "p-1"]


def test_a_scheduler_that_takes_no_commands_is_a_503_with_retry_after(engine: Engine) -> None:
    engine.reachable = False
    response = engine.client.delete(f"{wire.PROGRAMS_PATH}/p-1")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["code"] == "scheduler_unreachable"


@pytest.mark.parametrize("program", ["a/b", "a b", "%", "é"])
def test_a_program_may_have_any_name_that_calls_may_bring(engine: Engine, program: str) -> None:
    assert engine.client.delete(f"{wire.PROGRAMS_PATH}/{quote(program, safe='')}").status_code == 204
    assert engine.ended == [program]


@pytest.mark.parametrize("program", ["", 257 * "p"])
def test_an_impossible_program_is_a_400(engine: Engine, program: str) -> None:
    response = engine.client.delete(f"{wire.PROGRAMS_PATH}/{program}")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "program")
    assert engine.ended == []


def test_metrics_count_ends_by_outcome_and_level(engine: Engine) -> None:
    engine.add(1, level=2)
    engine.add(2, level=2, outcome="aborted")
    value = engine.registry.get_sample_value
    assert value("autellix_engine_calls_total", {"outcome": "finished", "level": "2"}) == 1
    assert value("autellix_engine_calls_total", {"outcome": "aborted", "level": "2"}) == 1
    assert value("autellix_engine_call_service_seconds_sum", {"level": "2"}) == 3.0
    assert value("autellix_engine_call_wait_seconds_count", {"level": "2"}) == 2


def test_metrics_show_what_the_scheduler_reported_last(engine: Engine) -> None:
    decisions = (1, 0, 3, *(0,) * (len(DECISION_SECONDS) - 3), 2)
    for preemptions in (3, 7):  # a count since the start, not since the last report
        engine.load(
            4,
            (1, 2),
            dropped=5,
            preemptions_policy=preemptions,
            preemptions_memory=1,
            promotions=6,
            bound_breaches=8,
            worst_ratio=3.5,
            runnable_programs=9,
            running_by_level=(4, 0),
            decisions=decisions,
            decision_seconds=0.25,
        )
    value = engine.registry.get_sample_value
    assert value("autellix_engine_preemptions_total", {"reason": "policy"}) == 7
    assert value("autellix_engine_preemptions_total", {"reason": "memory"}) == 1
    assert value("autellix_engine_promotions_total") == 6
    assert value("autellix_engine_bound_breaches_total") == 8
    assert value("autellix_engine_worst_wait_ratio") == 3.5
    assert value("autellix_engine_runnable_programs") == 9
    assert value("autellix_engine_running_calls", {"level": "0"}) == 4
    assert value("autellix_engine_waiting_calls", {"level": "1"}) == 2
    assert value("autellix_engine_tokens_in_flight") == 77
    assert value("autellix_engine_kv_usage_ratio") == 0.125
    assert value("autellix_engine_dropped_records_total") == 5
    assert value("autellix_engine_decision_seconds_bucket", {"le": "2.5e-05"}) == 1
    assert value("autellix_engine_decision_seconds_bucket", {"le": "5e-05"}) == 4
    assert value("autellix_engine_decision_seconds_count") == 6
    assert value("autellix_engine_decision_seconds_sum") == 0.25


async def test_a_record_is_sent_at_once_to_every_reader_and_streams_end_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "HEARTBEAT_SECONDS", 60.0)  # no record waits for the next beat
    engine = Engine()
    stopping = False
    streams = [engine.hub.stream(engine.hub.open(None), lambda: stopping, time.monotonic) for _ in range(3)]
    for stream in streams:
        await anext(stream)  # hello and load
    assert engine.hub.readers == 3
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await asyncio.sleep(0)
    engine.add(1)
    async with asyncio.timeout(60):
        for chunk in await asyncio.gather(*waiting):
            assert isinstance(wire.decode(chunk.splitlines()[0]), wire.CallRecord)
    stopping = True
    engine.add(2)
    for stream in streams:
        rest = [wire.decode(line) async for chunk in stream for line in chunk.splitlines()]
        assert [message.seq for message in rest if isinstance(message, wire.CallRecord)] == [2]
    assert engine.hub.readers == 0


async def test_an_idle_stream_beats() -> None:
    engine = Engine()
    stream = engine.hub.stream(engine.hub.open(None), lambda: False, time.monotonic)
    await anext(stream)
    started = time.monotonic()
    assert wire.decode(await anext(stream)) == engine.hub.load
    assert wire.HEARTBEAT_SECONDS * 0.9 < time.monotonic() - started < wire.HEARTBEAT_SECONDS * 10


async def test_another_incarnation_ends_the_stream_and_the_cursor_learns_of_it() -> None:
    engine = Engine()
    reader = engine.hub.open(None)
    stream = engine.hub.stream(reader, lambda: False, time.monotonic)
    await anext(stream)
    engine.add(1)
    await anext(stream)
    engine.hub.announce("engine-0", "def")
    async for _ in stream:
        pass
    again = engine.hub.open(reader.cursor)
    assert [wire.decode(line) for line in again.take(0.0, engine.hub.load).splitlines()][1] == wire.Gap(
        reason="restart", first=2, last=1
    )
