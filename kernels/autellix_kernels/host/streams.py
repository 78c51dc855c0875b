"""Streams and events of the CPU stand-in: queues of work, run in any order that their waits allow."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autellix_kernels.device import Event, Stream
from autellix_kernels.errors import SwapError

_REDRAW = 0.02
"""Chance per step that priorities are drawn anew."""

_AWAKE = 0.4
"""Streams of a lower priority run only when somebody waits for them."""


@dataclass
class _Mark:
    """One record of an event. An event that is recorded anew gets a new one; earlier waits keep the one they saw."""

    reached: bool = False
    at: float = 0.0


@dataclass(frozen=True)
class _Work:
    run: Callable[[], None]


@dataclass(frozen=True)
class _Record:
    mark: _Mark


@dataclass(frozen=True)
class _Wait:
    mark: _Mark


_Item = _Work | _Record | _Wait


class StreamQueues:
    """All streams and events of one device.

    Args:
        order: draws what runs next and how much runs when nobody waits; None: everything runs as soon as it may.
        clock: seconds, for events.
    """

    def __init__(self, order: random.Random | None, clock: Callable[[], float]) -> None:
        self._order = order
        self._clock = clock
        self._queues: dict[Stream, deque[_Item]] = {}
        self._events: dict[Event, _Mark] = {}
        self._priorities: dict[Stream, float] = {}
        self._stalled: set[Stream] = set()
        self._last_handle = 0

    def __len__(self) -> int:
        return len(self._queues) + len(self._events)

    def create_stream(self) -> Stream:
        """An empty stream."""
        stream = Stream(self._handle())
        self._queues[stream] = deque()
        return stream

    def destroy_stream(self, stream: Stream) -> None:
        """Ends a stream after what is on it."""
        self.drain(stream)
        del self._queues[stream]

    def create_event(self) -> Event:
        """An event that was never recorded."""
        event = Event(self._handle())
        self._events[event] = _Mark(reached=True)
        return event

    def destroy_event(self, event: Event) -> None:
        """Forgets an event; what is on streams still counts."""
        del self._events[event]

    def stall(self, stream: Stream) -> None:
        """Nothing on the stream runs until `resume`: what is next on it takes long."""
        self._stalled.add(stream)

    def resume(self, stream: Stream) -> None:
        """Ends a stall."""
        self._stalled.discard(stream)
        self._drift()

    def put(self, stream: Stream, work: Callable[[], None]) -> None:
        """Work at the end of a stream."""
        self._append(stream, _Work(work))

    def record(self, event: Event, stream: Stream) -> None:
        """The event at the end of a stream."""
        self._events[event] = mark = _Mark()
        self._append(stream, _Record(mark))

    def wait(self, stream: Stream, event: Event) -> None:
        """A wait for the event's last record at the end of a stream."""
        self._append(stream, _Wait(self._events[event]))

    def passed(self, event: Event) -> bool:
        """Whether the last record was reached; a little may happen first."""
        self._drift()
        return self._events[event].reached

    def reach(self, event: Event) -> None:
        """Runs things until the event's last record is reached."""
        mark = self._events[event]
        while not mark.reached:
            self._step()

    def drain(self, stream: Stream) -> None:
        """Runs things until the stream is empty."""
        while self._queues[stream]:
            self._step()

    def reached_at(self, event: Event) -> float:
        """When the event's last record was reached, by the clock."""
        return self._events[event].at

    def _append(self, stream: Stream, item: _Item) -> None:
        self._queues[stream].append(item)
        self._drift()

    def _drift(self) -> None:
        """Lets things happen that nobody waits for."""
        if self._order is None:
            while ready := self._ready():
                self._run(ready[0])
            return
        for _ in range(self._order.choice((0, 0, 0, 1, 2, 8))):
            awake = [stream for stream in self._ready() if self._priority(stream, self._order) > _AWAKE]
            if awake:
                self._run(self._choose(awake))

    def _step(self) -> None:
        ready = self._ready()
        if not ready:
            raise SwapError("deadlock: every stream is stalled or waits for an event that will not come")
        self._run(self._choose(ready))

    def _ready(self) -> list[Stream]:
        return [
            stream
            for stream, items in self._queues.items()
            if items and stream not in self._stalled and not (isinstance(items[0], _Wait) and not items[0].mark.reached)
        ]

    def _run(self, stream: Stream) -> None:
        item = self._queues[stream].popleft()
        if isinstance(item, _Work):
            item.run()
        elif isinstance(item, _Record):
            item.mark.reached = True
            item.mark.at = self._clock()

    def _choose(self, ready: Sequence[Stream]) -> Stream:
        """By priorities that are drawn anew now and then: so a stream may fall far behind, which fair draws prevent."""
        order = self._order
        if order is None:
            return ready[0]
        if order.random() < _REDRAW:
            self._priorities.clear()
        return max(ready, key=lambda stream: self._priority(stream, order))

    def _priority(self, stream: Stream, order: random.Random) -> float:
        return self._priorities.setdefault(stream, order.random())

    def _handle(self) -> int:
        self._last_handle += 1
        return self._last_handle
