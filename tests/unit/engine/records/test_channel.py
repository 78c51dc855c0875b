"""The channel over a real socket file: what the scheduler says reaches the hub, and it never waits to say it."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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
from autellix_engine.records.interface import RecordPublisher, SchedulerFigures
from autellix_engine.records.ring import Cursor
from autellix_wire import records as wire
from support.call_records import call_record


class Seen:
    """Keeps what an observer is told."""

    def __init__(self) -> None:
        self.records: list[wire.CallRecord] = []
        self.loads: list[wire.LoadReport] = []

    def record(self, record: wire.CallRecord) -> None:
        self.records.append(record)

    def report(self, load: wire.LoadReport, figures: SchedulerFigures) -> None:
        self.loads.append(load)
        self.figures = figures


def record(publisher: RecordPublisher) -> wire.CallRecord:
    return call_record(publisher.next_seq(), engine=publisher.engine, incarnation=publisher.incarnation)


def load(publisher: RecordPublisher, running: int) -> wire.LoadReport:
    return wire.LoadReport(
        engine=publisher.engine, incarnation=publisher.incarnation, running=running, waiting=0, waiting_by_level=(0, 0)
    )


async def nothing() -> None:
    """Wakes nobody."""


@asynccontextmanager
async def receiving(
    path: Path, hub: RecordHub, wake: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[ChannelReceiver]:
    receiver = ChannelReceiver(str(path), hub, wake or nothing)
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


async def until_load(hub: RecordHub, running: int) -> None:
    """Returns as soon as the newest load report says that so many calls run."""
    async with asyncio.timeout(30):
        while hub.load.running != running:
            await asyncio.sleep(0.001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.sock"


async def test_records_loads_and_the_state_arrive_in_order(path: Path) -> None:
    seen = Seen()
    hub = RecordHub("plas", seen)
    publisher = ChannelPublisher(str(path), "engine-0", "abc")
    records = [record(publisher) for _ in range(3)]
    figures = SchedulerFigures(promotions=3)
    publisher.report(load(publisher, 2), {"programs": 1}, figures)
    for each in records:
        publisher.publish(each)
    async with receiving(path, hub):  # the scheduler's process is the first of the two
        await hub.announced.wait()
        await until_seq(hub, 3)
        await until_load(hub, 2)
    publisher.close()
    assert seen.records == records
    assert (seen.loads, seen.figures) == ([load(publisher, 2)], figures)
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
        deadline = time.monotonic() + 60
        while len(taken) < 3 and time.monotonic() < deadline:
            taken += publisher.ended_programs()
            await asyncio.sleep(0.001)
        assert taken == ["a", "b", "ü"]
        assert publisher.ended_programs() == []
    publisher.close()


async def test_a_sleeping_scheduler_is_woken_until_it_has_taken_what_was_sent(path: Path) -> None:
    """It asks for ended programs only when it is woken, and the first time there is nothing yet."""
    publisher = ChannelPublisher(str(path), "e", "i")
    taken: list[str] = []
    wakes = 0

    async def wake() -> None:
        nonlocal wakes
        wakes += 1
        if wakes > 1:
            taken.extend(publisher.ended_programs())

    async with receiving(path, RecordHub("plas", Seen()), wake) as receiver:
        await receiver.end_program("a")
        async with asyncio.timeout(30):
            while not taken:
                await asyncio.sleep(0.001)
        woken = wakes
        await asyncio.sleep(3 * channel.WAKE_SECONDS)
        assert wakes <= woken + 1, "once it has taken it, it may sleep"
        await receiver.end_program("b")
        async with asyncio.timeout(30):
            while len(taken) < 2:
                await asyncio.sleep(0.001)
    publisher.close()
    assert taken == ["a", "b"]


async def test_a_scheduler_that_cannot_be_woken_is_no_harm_to_the_stream(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def wake() -> None:
        raise RuntimeError("shutting down")

    publisher = ChannelPublisher(str(path), "e", "i")
    hub = RecordHub("plas", Seen())
    async with receiving(path, hub, wake) as receiver:
        await receiver.end_program("a")
        async with asyncio.timeout(30):
            while "shutting down" not in caplog.text:
                await asyncio.sleep(0.001)
        publisher.publish(record(publisher))
        await until_seq(hub, 1)
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
    publisher.report(load(publisher, 1), {}, SchedulerFigures())
    assert time.perf_counter() - started < 10.0
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


async def test_the_newest_load_report_arrives_however_full_the_queue_of_records_was(path: Path) -> None:
    """An engine that has run empty says so once: nobody would repeat it."""
    publisher = ChannelPublisher(str(path), "e", "i", queue_messages=10)
    for running in (3, 2, 1, 0):
        for _ in range(100):
            publisher.publish(record(publisher))
        publisher.report(load(publisher, running), {"running": running}, SchedulerFigures())
    assert publisher.dropped > 0
    hub = RecordHub("plas", Seen())
    hub.load = load(publisher, 9)
    async with receiving(path, hub):
        await until_load(hub, 0)
    publisher.close()
    assert bytes(hub.state) == b'{"running":0}'


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
    assert time.monotonic() - started < channel.CLOSE_SECONDS + 10.0


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
        [b"taken", b"many"],
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
    assert len(caplog.records) == 6
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
    publisher.report(load(publisher, 1), {}, SchedulerFigures())
    assert publisher.next_seq() == 2
    assert publisher.ended_programs() == ()
    assert publisher.dropped == 0
    publisher.close()


def test_every_start_is_another_incarnation() -> None:
    assert make_publisher({}).incarnation != make_publisher({}).incarnation
