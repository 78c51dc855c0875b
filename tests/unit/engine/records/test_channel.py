"""The channel over a real socket file: what the scheduler says reaches the hub, and it never waits to say it."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from autellix_engine.launcher import handover
from autellix_engine.records import channel
from autellix_engine.records.channel import (
    ChannelPublisher,
    ChannelReceiver,
    NullPublisher,
    SchedulerUnreachable,
    make_publisher,
)
from autellix_engine.records.hub import RecordHub
from autellix_engine.records.interface import RecordPublisher
from autellix_engine.records.ring import Cursor
from autellix_wire import records as wire


class Seen:
    """Keeps what an observer is told."""

    def __init__(self) -> None:
        self.records: list[wire.CallRecord] = []
        self.loads: list[wire.LoadReport] = []

    def record(self, record: wire.CallRecord) -> None:
        self.records.append(record)

    def load(self, report: wire.LoadReport) -> None:
        self.loads.append(report)


def record(publisher: RecordPublisher) -> wire.CallRecord:
    seq = publisher.next_seq()
    return wire.CallRecord(
        seq=seq,
        engine=publisher.engine,
        incarnation=publisher.incarnation,
        program="p",
        call=f"c{seq}",
        outcome="finished",
        service_ms=1.0,
        wait_ms=0.0,
        path_ms=1.0,
        program_wait_ms=0.0,
        totals=wire.ProgramTotals(service_ms=1.0, calls=seq),
    )


def load(publisher: RecordPublisher, running: int) -> wire.LoadReport:
    return wire.LoadReport(
        engine=publisher.engine, incarnation=publisher.incarnation, running=running, waiting=0, waiting_by_level=(0, 0)
    )


@asynccontextmanager
async def receiving(path: Path, hub: RecordHub) -> AsyncIterator[ChannelReceiver]:
    receiver = ChannelReceiver(str(path), hub)
    task = asyncio.create_task(receiver.run())
    try:
        yield receiver
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        receiver.close()


async def until_seq(hub: RecordHub, seq: int) -> None:
    """Returns as soon as the hub holds record ``seq``, by reading a stream as clients do."""
    stream = hub.stream(hub.open(None), lambda: False, time.monotonic)
    async for _ in stream:
        if hub.ring.last_seq >= seq:
            break
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.sock"


async def test_records_loads_and_the_state_arrive_in_order(path: Path) -> None:
    seen = Seen()
    hub = RecordHub("plas", seen)
    publisher = ChannelPublisher(str(path), "engine-0", "abc")
    records = [record(publisher) for _ in range(3)]
    publisher.report(load(publisher, 2), {"programs": 1})
    for each in records:
        publisher.publish(each)
    async with receiving(path, hub):  # the scheduler's process is the first of the two
        await hub.announced.wait()
        await until_seq(hub, 3)
    publisher.close()
    assert seen.records == records
    assert seen.loads == [load(publisher, 2)]
    assert bytes(hub.state) == b'{"programs":1}'
    assert (hub.ring.incarnation, hub.load.engine, hub.load.running) == ("abc", "engine-0", 2)


async def test_ended_programs_reach_the_scheduler_once(path: Path) -> None:
    publisher = ChannelPublisher(str(path), "e", "i")
    hub = RecordHub("plas", Seen())
    async with receiving(path, hub) as receiver:
        await hub.announced.wait()
        for program in ("a", "b", "ü"):
            await receiver.end_program(program)
        taken: list[str] = []
        deadline = time.monotonic() + 10
        while len(taken) < 3 and time.monotonic() < deadline:
            taken += publisher.ended_programs()
            await asyncio.sleep(0.001)
        assert taken == ["a", "b", "ü"]
        assert publisher.ended_programs() == []
    publisher.close()


async def test_a_command_without_a_scheduler_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "COMMAND_SECONDS", 0.05)
    async with receiving(path, RecordHub("plas", Seen())) as receiver:
        with pytest.raises(SchedulerUnreachable, match="takes no commands"):
            await receiver.end_program("a")


async def test_a_full_queue_drops_counts_and_never_waits(path: Path) -> None:
    publisher = ChannelPublisher(str(path), "e", "i", queue_messages=10)
    started = time.perf_counter()
    for _ in range(1000):
        publisher.publish(record(publisher))
    publisher.report(load(publisher, 1), {})
    assert time.perf_counter() - started < 1.0
    assert publisher.dropped == 1000 - 9  # the announcement has one of the ten places

    hub = RecordHub("plas", Seen())
    async with receiving(path, hub):
        await until_seq(hub, 9)
        publisher.publish(record(publisher))
        await until_seq(hub, 1001)
        reader = hub.open(Cursor("i", 0))
        messages = [wire.decode(line) for line in reader.take(0.0, hub.load).splitlines()]
    publisher.close()
    assert [message for message in messages if isinstance(message, wire.Gap)] == [
        wire.Gap(reason="dropped", first=10, last=1000)
    ]


async def test_a_hundred_thousand_records_pass_or_are_counted_as_dropped(path: Path) -> None:
    seen = Seen()
    hub = RecordHub("plas", seen)
    publisher = ChannelPublisher(str(path), "e", "i")
    total = 100_000
    async with receiving(path, hub):
        await hub.announced.wait()

        def publish() -> None:
            for _ in range(total):
                publisher.publish(record(publisher))

        await asyncio.to_thread(publish)
        last = record(publisher)
        while True:  # until the queue has room for one more
            dropped = publisher.dropped
            publisher.publish(last)
            if publisher.dropped == dropped:
                break
            publisher.dropped = dropped
            await asyncio.sleep(0.01)
        await until_seq(hub, last.seq)
    publisher.close()
    assert len(seen.records) + publisher.dropped == total + 1
    assert [each.seq for each in seen.records] == sorted({each.seq for each in seen.records})


async def test_closing_waits_a_moment_for_what_is_queued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CLOSE_SECONDS", 30.0)
    publisher = ChannelPublisher(str(path), "e", "i")
    publisher.publish(record(publisher))
    closing = asyncio.create_task(asyncio.to_thread(publisher.close))
    while not publisher._socket.closed:  # the receiver must come late
        await asyncio.sleep(0.01)
    hub = RecordHub("plas", Seen())
    async with receiving(path, hub), asyncio.timeout(30):
        await until_seq(hub, 1)
    await closing


def test_closing_without_a_listener_takes_a_moment_only(path: Path) -> None:
    publisher = ChannelPublisher(str(path), "e", "i")
    publisher.publish(record(publisher))
    started = time.monotonic()
    publisher.close()
    assert time.monotonic() - started < channel.CLOSE_SECONDS + 1.0


async def test_messages_that_make_no_sense_are_logged_and_passed_over(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = NullPublisher("e", "i")
    first, second = wire.encode(record(numbers)), wire.encode(record(numbers))
    hub = RecordHub("plas", Seen())
    context = zmq.Context()
    sender = context.socket(zmq.DEALER)
    sender.connect(f"ipc://{path}")
    for message in (
        [b"nonsense"],
        [b"call", b"{"],
        [b"call", b'{"type":"load"}'],
        [b"hello", b'["e","i"]'],
        [b"hello", b'{"engine":"e","incarnation":"i"}'],
        [b"call", first],
        [b"call", first],
        [b"call", second],
    ):
        sender.send_multipart(message)
    async with receiving(path, hub):
        await hub.announced.wait()
        await until_seq(hub, 2)
    sender.close(linger=0)
    context.term()
    assert len(caplog.records) == 5
    assert "nonsense" in caplog.text
    assert "record 1 came after record 1" in caplog.text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_the_scheduler_its_channel(path: Path) -> None:
    publisher = ChannelPublisher(str(path), "e", "i")
    child = os.fork()
    if child == 0:
        del publisher
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    publisher.publish(record(publisher))
    assert publisher.dropped == 0
    publisher.close()


def _publish_one(path: str) -> None:
    publisher = make_publisher({handover.RECORDS_SOCKET: path, handover.ENGINE_NAME: "spawned"})
    publisher.publish(record(publisher))
    publisher.close()


async def test_a_spawned_process_publishes_by_its_environment_alone(path: Path) -> None:
    hub = RecordHub("plas", Seen())
    async with receiving(path, hub):
        process = multiprocessing.get_context("spawn").Process(target=_publish_one, args=(str(path),))
        process.start()
        await hub.announced.wait()
        await until_seq(hub, 1)
        await asyncio.to_thread(process.join)
    assert process.exitcode == 0
    assert hub.load.engine == "spawned"


def test_without_a_socket_records_are_numbered_and_go_nowhere() -> None:
    publisher = make_publisher({handover.ENGINE_NAME: "engine-0"})
    assert isinstance(publisher, NullPublisher)
    assert publisher.engine == "engine-0"
    publisher.publish(record(publisher))
    publisher.report(load(publisher, 1), {})
    assert publisher.next_seq() == 2
    assert publisher.ended_programs() == ()
    assert publisher.dropped == 0
    publisher.close()


def test_every_start_is_another_incarnation() -> None:
    assert make_publisher({}).incarnation != make_publisher({}).incarnation
