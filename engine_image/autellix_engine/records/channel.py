"""The channel between the scheduler's process and the API server's: ZeroMQ over two socket files.

The scheduler's end never waits: a record that does not fit is dropped and counted, and sending itself happens on
ZeroMQ's own thread, outside of the interpreter. Messages to the API server are ``[kind, payload]``, with records
already encoded as lines of the stream; messages to the scheduler are ids of programs that ended. Load reports have a
socket of their own that holds the newest one alone, so that a queue full of records does not hide an idle engine.

A scheduler without calls sleeps. So that it takes over ended programs then, too, it is woken until it has said that it
took them.
"""

import asyncio
import logging
import secrets
import socket as sockets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import zmq
import zmq.asyncio

from autellix_engine.launcher import handover
from autellix_engine.records.hub import RecordHub
from autellix_engine.records.interface import RecordPublisher, SchedulerFigures
from autellix_wire import records as wire

#: Most messages that wait in either direction, about 5 MB of records.
QUEUE_MESSAGES: Final = 10_000
#: Most ended programs that one step of the scheduler takes over.
COMMANDS_PER_CALL: Final = 1_000
#: How long a closing scheduler waits for its last records to leave.
CLOSE_SECONDS: Final = 0.5
#: How long the API server waits for a place in the queue to the scheduler.
COMMAND_SECONDS: Final = 1.0
#: How long it waits for the scheduler to take over what was sent before it wakes it again.
WAKE_SECONDS: Final = 0.05

_HELLO, _CALL, _TAKEN = b"hello", b"call", b"taken"

logger = logging.getLogger(__name__)


class SchedulerUnreachable(Exception):
    """The scheduler takes no commands: it is not there, or it is too far behind."""


class InvalidMessage(ValueError):
    """Something else than our scheduler writes into the channel."""


class Announcement(msgspec.Struct, frozen=True):
    """The first message of a scheduler: who it is."""

    engine: str
    incarnation: str


class Report(msgspec.Struct, frozen=True):
    """What the socket for load reports carries."""

    load: wire.LoadReport
    figures: SchedulerFigures
    state: msgspec.Raw


def make_publisher(env: Mapping[str, str]) -> RecordPublisher:
    """The scheduler's end of the channel that ``env`` names; without one, records go nowhere.

    Call it in the process that will use it: neither end survives a fork.
    """
    engine = env.get(handover.ENGINE_NAME) or sockets.gethostname()
    incarnation = secrets.token_hex(8)
    path = env.get(handover.RECORDS_SOCKET)
    if not path:
        return NullPublisher(engine, incarnation)
    return ChannelPublisher(path, engine, incarnation)


class NullPublisher:
    """Numbers records like the real one, for a scheduler that runs without an API server (tests, benchmarks)."""

    def __init__(self, engine: str, incarnation: str) -> None:
        self.engine: Final = engine
        self.incarnation: Final = incarnation
        self.dropped: Final = 0
        self._last_seq = 0

    def next_seq(self) -> int:
        """Takes the next sequence number, from 1."""
        self._last_seq += 1
        return self._last_seq

    def publish(self, record: wire.CallRecord) -> None:
        """Nobody listens."""

    def report(self, load: wire.LoadReport, state: Mapping[str, object], figures: SchedulerFigures) -> None:
        """Nobody listens."""

    def ended_programs(self) -> Sequence[str]:
        """Nobody commands."""
        return ()

    def close(self) -> None:
        """Holds nothing."""


class ChannelPublisher:
    """The scheduler's end. It belongs to the thread of the scheduler."""

    def __init__(self, path: str, engine: str, incarnation: str, queue_messages: int = QUEUE_MESSAGES) -> None:
        self.engine: Final = engine
        self.incarnation: Final = incarnation
        self.dropped = 0
        self._last_seq = 0
        self._taken = self._acknowledged = 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(queue_messages)
        self._socket.connect(f"ipc://{path}")
        self._reports = self._context.socket(zmq.PUSH)
        self._reports.setsockopt(zmq.CONFLATE, 1)
        self._reports.connect(f"ipc://{handover.reports_socket(path)}")
        self._send([_HELLO, msgspec.json.encode(Announcement(engine, incarnation))])

    def next_seq(self) -> int:
        """Takes the next sequence number, from 1."""
        self._last_seq += 1
        return self._last_seq

    def publish(self, record: wire.CallRecord) -> None:
        """Hands over a record, or drops and counts it if the queue is full."""
        if not self._send([_CALL, wire.encode(record)]):
            self.dropped += 1

    def report(self, load: wire.LoadReport, state: Mapping[str, object], figures: SchedulerFigures) -> None:
        """Hands over a report in place of one that was not sent yet."""
        report = Report(load, figures, msgspec.Raw(msgspec.json.encode(state)))
        self._reports.send(msgspec.json.encode(report), zmq.NOBLOCK)

    def ended_programs(self) -> Sequence[str]:
        """Programs that the API was told to forget since the last call, at most ``COMMANDS_PER_CALL``."""
        programs: list[str] = []
        while len(programs) < COMMANDS_PER_CALL:
            try:
                programs.append(self._socket.recv(zmq.NOBLOCK).decode())
            except zmq.Again:
                break
        self._taken += len(programs)
        if self._taken != self._acknowledged and self._send([_TAKEN, b"%d" % self._taken]):
            self._acknowledged = self._taken
        return programs

    def close(self) -> None:
        """Sends what is queued for at most ``CLOSE_SECONDS``."""
        for socket in (self._socket, self._reports):
            socket.close(linger=round(CLOSE_SECONDS * 1000))
        self._context.term()

    def _send(self, message: list[bytes]) -> bool:
        try:
            self._socket.send_multipart(message, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


class ChannelReceiver:
    """The API server's end: feeds a hub with what the scheduler says. It belongs to one event loop."""

    def __init__(
        self,
        path: str,
        hub: RecordHub,
        wake_scheduler: Callable[[], Awaitable[None]],
        queue_messages: int = QUEUE_MESSAGES,
    ) -> None:
        """``wake_scheduler`` makes the scheduler ask for ended programs, soon, even if it has nothing else to do."""
        self._hub = hub
        self._wake_scheduler = wake_scheduler
        self._sent = self._taken = 0
        self._commands = asyncio.Condition()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(queue_messages)
        self._socket.bind(f"ipc://{path}")
        self._reports = self._context.socket(zmq.PULL)
        self._reports.bind(f"ipc://{handover.reports_socket(path)}")

    async def run(self) -> None:
        """Receives until it is cancelled. A message that makes no sense is logged and passed over."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive())
            group.create_task(self._receive_reports())
            group.create_task(self._wake())

    async def end_program(self, program: str) -> None:
        """Tells the scheduler to forget a program. Raises SchedulerUnreachable."""
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._socket.send(program.encode())
        except TimeoutError:
            raise SchedulerUnreachable("The scheduler takes no commands at the moment.") from None
        async with self._commands:
            self._sent += 1
            self._commands.notify_all()

    def close(self) -> None:
        """Closes the channel; commands that were not taken are dropped."""
        for socket in (self._socket, self._reports):
            socket.close(linger=0)
        self._context.term()

    async def _receive(self) -> None:
        while True:
            message = await self._socket.recv_multipart()
            try:
                match message:
                    case [kind, payload] if kind == _CALL:
                        self._hub.add(msgspec.json.decode(payload, type=wire.CallRecord), payload)
                    case [kind, payload] if kind == _TAKEN:
                        async with self._commands:
                            self._taken = max(self._taken, int(payload))
                            self._commands.notify_all()
                    case [kind, payload] if kind == _HELLO:
                        who = msgspec.json.decode(payload, type=Announcement)
                        self._hub.announce(who.engine, who.incarnation)
                    case _:
                        raise InvalidMessage(f"{len(message)} frames, the first of them {bytes(message[0])[:40]!r}")
            except ValueError as error:  # msgspec's and the ring's errors are ValueErrors, too
                logger.error("Passing over a message on the record channel: %s", error)

    async def _receive_reports(self) -> None:
        while True:
            message = await self._reports.recv()
            try:
                report = msgspec.json.decode(message, type=Report)
            except ValueError as error:
                logger.error("Passing over a load report: %s", error)
            else:
                self._hub.update(report.load, report.state, report.figures)

    async def _wake(self) -> None:
        """Wakes the scheduler whenever it has not taken over everything yet, and again if it has missed something: what
        is sent on the way to sleep arrives after the call that wakes."""
        while True:
            async with self._commands:
                await self._commands.wait_for(lambda: self._taken < self._sent)
            try:
                await self._wake_scheduler()
            except Exception as error:  # plain ones are what vLLM's core refuses with, for one that shuts down
                logger.warning(
                    "The scheduler cannot be woken; it will forget ended programs with its next call: %s", error
                )
                self._sent = self._taken
            with suppress(TimeoutError):
                async with asyncio.timeout(WAKE_SECONDS), self._commands:
                    await self._commands.wait_for(lambda: self._taken >= self._sent)
