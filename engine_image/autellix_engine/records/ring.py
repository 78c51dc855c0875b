"""The resumable stream of call records: a bounded ring, and readers that each follow it at their own pace.

Nothing here waits or knows the time by itself: a reader says what has to be sent now, and when it wants to be asked
again at the latest.
A reader costs nothing while it is slow: it holds a position, not a queue. What it has not taken when the ring comes
round is gone, and it is told so by a ``Gap``.
"""

import bisect
import math
from dataclasses import dataclass
from typing import Final, Literal

from autellix_wire import records as wire

#: Most records that one ``take`` returns, so that a reader that starts far back does not hold the event loop.
BATCH: Final = 256
#: Shortest time between two load reports to one reader. Reports come as fast as the engine steps; readers need them
#: fresher than the heartbeat, but not that often.
LOAD_INTERVAL_SECONDS: Final = 0.1
_MAX_DIGITS: Final = 18


class InvalidCursor(ValueError):
    """A reader's cursor is malformed or lies ahead of the stream; the message says which."""


@dataclass(frozen=True)
class Cursor:
    """The last record that a reader has: sequence number ``seq`` of one incarnation, 0 before the first."""

    incarnation: str
    seq: int

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Reads ``<incarnation>:<seq>``. Raises InvalidCursor."""
        incarnation, separator, seq = text.rpartition(":")
        if not (separator and incarnation and seq.isascii() and seq.isdigit() and len(seq) <= _MAX_DIGITS):
            raise InvalidCursor(f"after: {text[:80]!r} is not <incarnation>:<sequence number>")
        return cls(incarnation, int(seq))


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as it goes out: ``line`` is the encoded line of the stream."""

    seq: int
    line: bytes


class RecordRing:
    """The newest records of one incarnation, as lines of the stream, in order of their sequence numbers.

    Sequence numbers may have holes: a number that was taken and never came was dropped on the way.
    """

    def __init__(self, incarnation: str, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: {capacity} is not at least 1")
        self.incarnation: Final = incarnation
        self._slots: list[Entry | None] = [None] * capacity
        self._appended = 0
        self._evicted_seq = 0

    @property
    def evicted_seq(self) -> int:
        """Sequence number of the newest record that had to make room, 0 while none had to."""
        return self._evicted_seq

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest record, 0 before the first."""
        return self._at(self._appended - 1).seq if self._appended else 0

    @property
    def oldest_seq(self) -> int:
        """Sequence number of the oldest record still held; one past the newest while there is none."""
        return self._at(self._first_index).seq if self._appended else 1

    def append(self, seq: int, line: bytes) -> None:
        """Adds a record. Raises ValueError if ``seq`` does not lie past the newest: a number is used once."""
        if seq <= self.last_seq:
            raise ValueError(f"record {seq} came after record {self.last_seq}")
        index = self._appended % len(self._slots)
        if (evicted := self._slots[index]) is not None:
            self._evicted_seq = evicted.seq
        self._slots[index] = Entry(seq, line)
        self._appended += 1

    def after(self, seq: int, limit: int) -> list[Entry]:
        """Up to ``limit`` held records past ``seq``, oldest first."""
        held = range(self._first_index, self._appended)
        start = self._first_index + bisect.bisect_right(held, seq, key=lambda index: self._at(index).seq)
        return [self._at(index) for index in range(start, min(start + limit, self._appended))]

    @property
    def _first_index(self) -> int:
        return max(0, self._appended - len(self._slots))

    def _at(self, index: int) -> Entry:
        slot = self._slots[index % len(self._slots)]
        assert slot is not None, "only indexes of appended records are asked for"
        return slot


class StreamReader:
    """One reader's way along the stream: ``Hello`` first, then what it misses, then records as they come.

    Without a cursor it starts with the oldest record held. Raises InvalidCursor if the cursor lies ahead of the
    stream.
    """

    def __init__(self, ring: RecordRing, engine: str, policy: str, after: Cursor | None) -> None:
        self._ring = ring
        self._pending: list[wire.Message] = [
            wire.Hello(engine=engine, incarnation=ring.incarnation, policy=policy, next_seq=ring.last_seq + 1)
        ]
        if after is None:
            self._seq = ring.oldest_seq - 1
        elif after.incarnation == ring.incarnation:
            if after.seq > ring.last_seq:
                raise InvalidCursor(f"after: record {after.seq} does not exist yet, the newest is {ring.last_seq}")
            self._seq = after.seq
        else:
            # How many records the former incarnation still made is known to nobody: an empty range says so.
            self._pending.append(wire.Gap(reason="restart", first=after.seq + 1, last=after.seq))
            self._seq = 0
        self._load_sent: wire.LoadReport | None = None
        self._load_sent_at = -math.inf

    @property
    def cursor(self) -> Cursor:
        """Where a new reader would go on after everything this one has taken."""
        return Cursor(self._ring.incarnation, self._seq)

    def take(self, now: float, load: wire.LoadReport) -> bytes:
        """The lines to send now, possibly none. ``now`` is in seconds of a steady clock, ``load`` the newest report.

        Everything taken counts as sent.
        """
        lines = [wire.encode(message) for message in self._pending]
        self._pending.clear()
        for slot in self._ring.after(self._seq, BATCH):
            if slot.seq > self._seq + 1:
                gap = wire.Gap(reason=self._gap_reason(), first=self._seq + 1, last=slot.seq - 1)
                lines.append(wire.encode(gap))
            lines.append(slot.line)
            self._seq = slot.seq
        if now >= self._load_due_at(load):
            lines.append(wire.encode(load))
            self._load_sent, self._load_sent_at = load, now
        return b"".join(lines)

    def wait_seconds(self, now: float, load: wire.LoadReport) -> float:
        """How long from ``now`` nothing needs to be sent unless something changes."""
        if self._pending or self._seq < self._ring.last_seq:
            return 0.0
        return max(0.0, self._load_due_at(load) - now)

    def _gap_reason(self) -> Literal["overrun", "dropped"]:
        return "overrun" if self._seq < self._ring.evicted_seq else "dropped"

    def _load_due_at(self, load: wire.LoadReport) -> float:
        interval = wire.HEARTBEAT_SECONDS if load == self._load_sent else LOAD_INTERVAL_SECONDS
        return self._load_sent_at + interval
