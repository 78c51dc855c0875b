"""Reads one engine's stream of call records and load reports, resuming where it was cut."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final, Protocol

import msgspec

from autellix_controller.background import Backoff
from autellix_controller.logs import fields
from autellix_wire import records
from autellix_wire.records import CallRecord, Gap, Hello, LoadReport

log = logging.getLogger(__name__)

#: An engine that cannot be asked for records (a stock server) is asked again so often: it may have been replaced.
_UNSUPPORTED_SECONDS: Final = 30.0


class StreamUnsupported(Exception):
    """The engine has no record stream."""


class StreamBroken(Exception):
    """The stream could not be opened, broke, fell silent, or says what is not in the contract."""


class RecordSource(Protocol):
    """Opens an engine's stream."""

    def lines(self, after: str | None) -> AsyncIterator[bytes]:
        """Lines after the cursor, from the oldest kept one without a cursor.

        Raises StreamUnsupported or StreamBroken, the latter also after too long a silence.
        """


class Sink(Protocol):
    """What happens with what an engine says."""

    def record(self, record: CallRecord) -> None:
        """A call ended."""

    def load(self, report: LoadReport) -> None:
        """The engine said how busy it is."""

    def gap(self, gap: Gap) -> None:
        """Records were lost."""

    def cut(self) -> None:
        """A stream that had begun has ended: the engine may be gone."""


class Follower:
    """Follows the stream of one engine for ever."""

    def __init__(self, engine: str, source: RecordSource, sink: Sink, backoff: Backoff) -> None:
        self._engine, self._source, self._sink, self._backoff = engine, source, sink, backoff
        self._incarnation = ""
        self._seq = 0
        self._begun = False

    @property
    def cursor(self) -> str | None:
        """Where to resume: ``<incarnation>:<seq>``, None before the first line.

        A fresh reader starts at the oldest record that is kept: what a replica that died had not written yet is
        applied again that way.
        """
        return f"{self._incarnation}:{self._seq}" if self._incarnation else None

    async def run(self) -> None:
        """Reads, and reconnects with growing pauses, until cancelled."""
        while True:
            try:
                await self.read_once()
                reason = "the engine ended the stream"
            except StreamUnsupported:
                await asyncio.sleep(_UNSUPPORTED_SECONDS)
                continue
            except StreamBroken as error:
                reason = str(error)
            if self._begun:
                self._begun = False
                self._sink.cut()
            log.info("record stream cut, reconnecting", extra=fields(engine=self._engine, reason=reason))
            await asyncio.sleep(self._backoff.pause())

    async def read_once(self) -> None:
        """Reads one connection to its end. Raises StreamUnsupported or StreamBroken."""
        greeted = False
        async for line in self._source.lines(self.cursor):
            try:
                message = records.decode(line)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise StreamBroken(f"not a message: {error}") from None
            if not greeted and not isinstance(message, Hello):
                raise StreamBroken("the first line is not a hello")
            greeted = True
            self._take(message)
            self._backoff.reset()

    def _take(self, message: records.Message) -> None:
        match message:
            case Hello():
                self._begun = True
                if message.incarnation != self._incarnation:
                    self._incarnation, self._seq = message.incarnation, 0
            case CallRecord():
                self._seq = max(self._seq, message.seq)
                self._sink.record(message)
            case LoadReport():
                self._sink.load(message)
            case Gap():
                log.warning(
                    "call records lost",
                    extra=fields(engine=self._engine, reason=message.reason, first=message.first, last=message.last),
                )
                self._sink.gap(message)
