from collections.abc import AsyncIterator
from typing import Any

import pytest

from autellix_controller.background import Backoff
from autellix_controller.engines.follower import Follower, StreamBroken
from autellix_wire import records
from autellix_wire.records import CallRecord, Gap, Hello, LoadReport, Message
from support.call_records import call_record


def hello(incarnation: str = "one") -> Hello:
    return Hello(engine="e", incarnation=incarnation, policy="plas", next_seq=1)


class Source:
    def __init__(self, *connections: list[Message | bytes]) -> None:
        self.connections = list(connections)
        self.cursors: list[str | None] = []

    async def lines(self, after: str | None) -> AsyncIterator[bytes]:
        self.cursors.append(after)
        for message in self.connections.pop(0):
            yield message if isinstance(message, bytes) else records.encode(message).rstrip(b"\n")


class Sink:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def record(self, record: CallRecord) -> None:
        self.seen.append(record.seq)

    def load(self, report: LoadReport) -> None:
        self.seen.append(report.running)

    def gap(self, gap: Gap) -> None:
        self.seen.append(gap.reason)

    def cut(self) -> None:
        self.seen.append("cut")


def follower(source: Source, sink: Sink) -> Follower:
    return Follower("e", source, sink, Backoff(0, 0))


async def test_it_resumes_after_the_last_record_it_has_seen() -> None:
    source, sink = Source([hello(), call_record(1), call_record(2)], [hello(), call_record(3)], [hello()]), Sink()
    reader = follower(source, sink)
    for _ in range(3):
        await reader.read_once()
    assert source.cursors == [None, "one:2", "one:3"]
    assert sink.seen == [1, 2, 3]


async def test_a_restarted_engine_is_read_from_its_start() -> None:
    restart = Gap(reason="restart", first=3, last=3)
    source = Source(
        [hello(), call_record(7)], [hello("two"), restart, call_record(1, incarnation="two")], [hello("two")]
    )
    reader = follower(source, sink := Sink())
    for _ in range(3):
        await reader.read_once()
    assert source.cursors == [None, "one:7", "two:1"]
    assert sink.seen == [7, "restart", 1]


async def test_load_reports_pass() -> None:
    load = LoadReport(engine="e", incarnation="one", running=4, waiting=1)
    await follower(Source([hello(), load]), sink := Sink()).read_once()
    assert sink.seen == [4]


@pytest.mark.parametrize("lines", [[b"garbage"], [b'{"type":"unknown"}'], [call_record(1)], [hello(), b"\xff"]])
async def test_what_is_not_in_the_contract_breaks_the_stream(lines: list[Message | bytes]) -> None:
    with pytest.raises(StreamBroken):
        await follower(Source(lines), Sink()).read_once()


async def test_the_end_of_a_stream_is_told_and_a_stream_that_never_began_is_not() -> None:
    source, sink = Source([hello(), call_record(1)], [], [call_record(2)]), Sink()
    with pytest.raises(IndexError):  # the source has no more connections
        await follower(source, sink).run()
    assert sink.seen == [1, "cut"]
