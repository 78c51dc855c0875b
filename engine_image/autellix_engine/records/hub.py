"""What the API server knows of the scheduler: the ring of records, the newest load report, the newest state dump."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import msgspec

from autellix_engine.records.interface import SchedulerFigures
from autellix_engine.records.ring import Cursor, RecordRing, StreamReader
from autellix_wire import records as wire

#: Records kept for readers that come back, about 8 MB.
RING_RECORDS: Final = 16_384
#: How long a stream that is to end still waits for last records on their way.
SETTLE_SECONDS: Final = 0.1


class RecordObserver(Protocol):
    """Sees everything that arrives, for metrics."""

    def record(self, record: wire.CallRecord) -> None:
        """A call ended."""

    def report(self, load: wire.LoadReport, figures: SchedulerFigures) -> None:
        """The engine reported its load."""


class RecordHub:
    """The receiving side of the channel and the source of all streams. It belongs to one event loop."""

    def __init__(self, policy: str, observer: RecordObserver, capacity: int = RING_RECORDS) -> None:
        self.policy: Final = policy
        self.announced: Final = asyncio.Event()
        """Set as soon as the scheduler has said who it is; before, there is no stream to read."""
        self.load = wire.LoadReport(engine="", incarnation="", running=0, waiting=0)
        """The newest report; an idle engine until the first one."""
        self.state = msgspec.Raw(b"{}")
        """The newest state dump of the scheduler, as JSON."""
        self.readers = 0
        """Streams open now."""
        self._observer = observer
        self._ring = RecordRing("", capacity)
        self._capacity = capacity
        self._changed = asyncio.Event()

    @property
    def ring(self) -> RecordRing:
        """The records of the incarnation that runs now."""
        return self._ring

    def announce(self, engine: str, incarnation: str) -> None:
        """A scheduler starts, with no records yet."""
        self._ring = RecordRing(incarnation, self._capacity)
        if self.load.incarnation != incarnation:  # its first report may have come before
            self.load = wire.LoadReport(engine=engine, incarnation=incarnation, running=0, waiting=0)
        self.announced.set()
        self._notify()

    def add(self, record: wire.CallRecord, line: bytes) -> None:
        """A call ended; ``line`` is the record as encoded. Raises ValueError if it is out of order."""
        self._ring.append(record.seq, line)
        self._observer.record(record)
        self._notify()

    def update(self, load: wire.LoadReport, state: bytes, figures: SchedulerFigures) -> None:
        """A newer load report and state dump replace the last ones."""
        self.load = load
        self.state = msgspec.Raw(state)
        self._observer.report(load, figures)
        self._notify()

    def open(self, after: Cursor | None) -> StreamReader:
        """A new reader. Raises InvalidCursor."""
        return StreamReader(self._ring, self.load.engine, self.policy, after)

    async def stream(
        self, reader: StreamReader, stopping: Callable[[], bool], clock: Callable[[], float]
    ) -> AsyncIterator[bytes]:
        """Chunks of whole lines, for ever; once ``stopping()`` says so, it ends after the last record.

        It also ends when another incarnation has announced itself: the reader comes back with its cursor and is told.
        """
        self.readers += 1
        try:
            ending = False
            while True:
                changed = self._changed
                if chunk := reader.take(clock(), self.load):
                    yield chunk
                    continue
                if ending:
                    return
                ending = stopping() or reader.cursor.incarnation != self._ring.incarnation
                wait_seconds = SETTLE_SECONDS if ending else reader.wait_seconds(clock(), self.load)
                try:
                    async with asyncio.timeout(wait_seconds):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            self.readers -= 1

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
