"""The ring and its readers: nothing lost without a gap, nothing twice, whatever the pace of the readers."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_engine.records.ring import BATCH, Cursor, InvalidCursor, RecordRing, StreamReader
from autellix_wire import records as wire
from support.call_records import call_record

LOAD = wire.LoadReport(engine="e", incarnation="i", running=0, waiting=0)


def append(ring: RecordRing, seq: int) -> None:
    ring.append(seq, wire.encode(call_record(seq, incarnation=ring.incarnation)))


def reader(ring: RecordRing, after: Cursor | None = None) -> StreamReader:
    return StreamReader(ring, "e", "plas", after)


def take(reading: StreamReader, now: float = 0.0, load: wire.LoadReport = LOAD) -> list[wire.Message]:
    return [wire.decode(line) for line in reading.take(now, load).splitlines()]


def take_all(reading: StreamReader) -> list[wire.Message]:
    messages: list[wire.Message] = []
    for _ in range(1000):
        if not (more := take(reading)):
            return messages
        messages += more
    raise AssertionError("the reader never comes to an end")


def seqs(messages: Sequence[wire.Message]) -> list[int]:
    return [message.seq for message in messages if isinstance(message, wire.CallRecord)]


def gaps(messages: Sequence[wire.Message]) -> list[wire.Gap]:
    return [message for message in messages if isinstance(message, wire.Gap)]


def test_a_stream_begins_with_who_speaks_then_records_then_the_load() -> None:
    ring = RecordRing("i", 10)
    append(ring, 1)
    append(ring, 2)
    hello, first, second, load = take(reader(ring))
    assert hello == wire.Hello(engine="e", incarnation="i", policy="plas", next_seq=3)
    assert seqs([first, second]) == [1, 2]
    assert load == LOAD


def test_a_reader_without_a_cursor_gets_everything_held_and_no_gap_for_what_was_before() -> None:
    ring = RecordRing("i", 3)
    for seq in range(1, 11):
        append(ring, seq)
    messages = take_all(reader(ring))
    assert seqs(messages) == [8, 9, 10]
    assert not gaps(messages)


def test_a_reader_goes_on_after_its_cursor() -> None:
    ring = RecordRing("i", 10)
    for seq in (1, 2, 3):
        append(ring, seq)
    messages = take_all(reader(ring, Cursor("i", 2)))
    assert seqs(messages) == [3]
    assert not gaps(messages)


def test_what_the_ring_has_lost_since_the_cursor_is_one_gap() -> None:
    ring = RecordRing("i", 3)
    for seq in range(1, 11):
        append(ring, seq)
    messages = take_all(reader(ring, Cursor("i", 2)))
    assert gaps(messages) == [wire.Gap(reason="overrun", first=3, last=7)]
    assert seqs(messages) == [8, 9, 10]


def test_a_number_that_never_came_is_a_gap_where_it_is_missing() -> None:
    ring = RecordRing("i", 10)
    for seq in (2, 3, 6):
        append(ring, seq)
    _, *messages = take_all(reader(ring, Cursor("i", 0)))
    assert [message for message in messages if not isinstance(message, wire.LoadReport)] == [
        wire.Gap(reason="dropped", first=1, last=1),
        call_record(2),
        call_record(3),
        wire.Gap(reason="dropped", first=4, last=5),
        call_record(6),
    ]


def test_a_cursor_of_a_former_incarnation_is_told_and_gets_everything_of_this_one() -> None:
    ring = RecordRing("new", 10)
    append(ring, 1)
    messages = take_all(reader(ring, Cursor("old", 41)))
    assert gaps(messages) == [wire.Gap(reason="restart", first=42, last=41)]
    assert seqs(messages) == [1]


def test_a_cursor_of_a_former_incarnation_also_learns_of_an_overrun_of_this_one() -> None:
    ring = RecordRing("new", 2)
    for seq in (1, 2, 3):
        append(ring, seq)
    messages = take_all(reader(ring, Cursor("old", 41)))
    assert [gap.reason for gap in gaps(messages)] == ["restart", "overrun"]
    assert seqs(messages) == [2, 3]


def test_a_cursor_ahead_of_the_stream_is_refused() -> None:
    with pytest.raises(InvalidCursor, match="after: record 1 does not exist yet, the newest is 0"):
        reader(RecordRing("i", 10), Cursor("i", 1))


def test_a_number_is_used_once() -> None:
    ring = RecordRing("i", 10)
    append(ring, 2)
    with pytest.raises(ValueError, match="record 2 came after record 2"):
        append(ring, 2)
    with pytest.raises(ValueError, match="record 1 came after record 2"):
        append(ring, 1)
    assert seqs(take_all(reader(ring))) == [2]


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_ring_without_room_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        RecordRing("i", capacity)


@pytest.mark.parametrize(
    ("text", "cursor"), [("i:0", Cursor("i", 0)), ("a:b:12", Cursor("a:b", 12)), ("x:007", Cursor("x", 7))]
)
def test_cursors_are_read(text: str, cursor: Cursor) -> None:
    assert Cursor.parse(text) == cursor


@pytest.mark.parametrize("text", ["", "i", ":", "i:", ":1", "i:-1", "i:1.0", "i:x", "i:²", "i:" + 5000 * "9"])
def test_malformed_cursors_are_refused(text: str) -> None:
    with pytest.raises(InvalidCursor, match=r"after: .* is not <incarnation>:<sequence number>"):
        Cursor.parse(text)


def test_an_unchanged_load_is_repeated_as_heartbeat_and_not_sooner() -> None:
    reading = reader(RecordRing("i", 10))
    assert LOAD in take(reading, now=100.0)
    assert reading.wait_seconds(100.25, LOAD) == 0.75
    assert take(reading, now=100.75) == []
    assert take(reading, now=101.0) == [LOAD]


def test_a_changed_load_goes_out_sooner_but_not_with_every_step() -> None:
    busy = wire.LoadReport(engine="e", incarnation="i", running=1, waiting=0)
    reading = reader(RecordRing("i", 10))
    take(reading, now=100.0)
    assert take(reading, now=100.05, load=busy) == []
    assert take(reading, now=100.1, load=busy) == [busy]


@given(now=st.floats(0, 1e9), waited=st.floats(0, 3))
def test_after_the_announced_wait_there_is_something_to_send(now: float, waited: float) -> None:
    reading = reader(RecordRing("i", 10))
    take(reading, now=now)
    later = now + waited
    due = later + reading.wait_seconds(later, LOAD)
    assert take(reading, now=math.nextafter(due, math.inf)) == [LOAD]


def test_a_reader_far_behind_is_served_in_bounded_pieces_without_waiting() -> None:
    ring = RecordRing("i", 10 * BATCH)
    for seq in range(1, 3 * BATCH + 1):
        append(ring, seq)
    reading = reader(ring)
    assert len(seqs(take(reading))) == BATCH
    assert reading.wait_seconds(0.0, LOAD) == 0.0
    assert seqs(take_all(reading)) == list(range(BATCH + 1, 3 * BATCH + 1))


def check(asked_after: int, received: Sequence[wire.Message], sent: set[int], last: int) -> None:
    """Everything past ``asked_after`` up to ``last`` was received once and in order, or announced as missing."""
    position = asked_after
    for message in received:
        if isinstance(message, wire.Gap) and message.reason != "restart":
            assert message.first == position + 1
            assert message.last >= message.first
            if message.reason == "dropped":
                assert not sent & set(range(message.first, message.last + 1))
            position = message.last
        elif isinstance(message, wire.CallRecord):
            assert message.seq == position + 1
            assert message.seq in sent
            position = message.seq
    assert position == last


@settings(max_examples=300)
@given(
    capacity=st.integers(1, 12),
    script=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3)),  # a step of 2 or 3 leaves a hole
            st.tuples(st.just("read"), st.integers(0, 2)),  # which reader
            st.tuples(st.just("reconnect"), st.integers(0, 2)),
        ),
        max_size=80,
    ),
)
def test_nothing_is_lost_without_a_gap_and_nothing_comes_twice(capacity: int, script: list[tuple[str, int]]) -> None:
    ring = RecordRing("i", capacity)
    start = Cursor("i", 0)
    readers = [reader(ring, start) for _ in range(3)]
    received: list[list[wire.Message]] = [[] for _ in readers]
    sent: set[int] = set()
    last = 0
    for action, argument in script:
        if action == "append":
            last += argument
            sent.add(last)
            append(ring, last)
        elif action == "read":
            received[argument] += take(readers[argument])
        else:
            readers[argument] = reader(ring, readers[argument].cursor)
    for reading, messages in zip(readers, received, strict=True):
        messages += take_all(reading)
        check(0, messages, sent, last)


def test_a_hundred_thousand_records_reach_a_fast_and_a_slow_reader() -> None:
    total, capacity = 100_000, 16_384
    ring = RecordRing("i", capacity)
    fast, slow = reader(ring, Cursor("i", 0)), reader(ring, Cursor("i", 0))
    fast_seqs: list[int] = []
    slow_messages: list[wire.Message] = []
    line = wire.encode(call_record(1))
    before, after = line.split(b'"seq":1,')
    for seq in range(1, total + 1):
        ring.append(seq, before + b'"seq":%d,' % seq + after)
        if seq % 200 == 0:
            fast_seqs += seqs(take(fast))
        if seq % 30_000 == 0:
            slow_messages += take(slow)
    fast_seqs += seqs(take_all(fast))
    slow_messages += take_all(slow)
    assert fast_seqs == list(range(1, total + 1))
    check(0, slow_messages, set(range(1, total + 1)), total)
    assert {gap.reason for gap in gaps(slow_messages)} == {"overrun"}
