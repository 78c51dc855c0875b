"""A device whose streams are threads: copies run beside the model, late and in any order that events allow."""

import queue
import random
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from autellix_kernels.device import Event, Stream
from autellix_kernels.host.device import HostDevice

#: Nothing here takes longer, unless something waits for what never comes.
_PATIENCE_SECONDS = 60.0


@dataclass
class _Mark:
    """One record of an event."""

    reached: threading.Event = field(default_factory=threading.Event)
    at: float = 0.0


class ThreadQueues:
    """What `HostDevice` wants of its streams, with a thread for each.

    Args:
        delay: seconds that a stream sleeps before its next piece of work.
    """

    def __init__(self, delay: Callable[[], float]) -> None:
        self._delay = delay
        self._work: dict[Stream, queue.SimpleQueue[Callable[[], None] | None]] = {}
        self._threads: dict[Stream, threading.Thread] = {}
        self._events: dict[Event, _Mark] = {}
        self._held: Collection[Stream] = ()
        self._changed = threading.Condition()
        self._last_handle = 0

    def __len__(self) -> int:
        return len(self._threads) + len(self._events)

    def hold(self, streams: Collection[Stream]) -> None:
        """Nothing begins on these streams until `let_go`."""
        with self._changed:
            self._held = tuple(streams)

    def let_go(self) -> None:
        """Ends `hold`."""
        with self._changed:
            self._held = ()
            self._changed.notify_all()

    def create_stream(self) -> Stream:
        stream = Stream(self._handle())
        work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._work[stream] = work
        self._threads[stream] = threading.Thread(
            target=self._run, args=(stream, work), name=f"stream {stream}", daemon=True
        )
        self._threads[stream].start()
        return stream

    def destroy_stream(self, stream: Stream) -> None:
        self._work.pop(stream).put(None)
        self._threads.pop(stream).join(_PATIENCE_SECONDS)

    def create_event(self) -> Event:
        event = Event(self._handle())
        self._events[event] = _Mark()
        self._events[event].reached.set()
        return event

    def destroy_event(self, event: Event) -> None:
        del self._events[event]

    def put(self, stream: Stream, work: Callable[[], None]) -> None:
        self._work[stream].put(work)

    def record(self, event: Event, stream: Stream) -> None:
        self._events[event] = mark = _Mark()

        def reach() -> None:
            mark.at = time.perf_counter()
            mark.reached.set()

        self._work[stream].put(reach)

    def wait(self, stream: Stream, event: Event) -> None:
        mark = self._events[event]
        self._work[stream].put(lambda: _await(mark))

    def passed(self, event: Event) -> bool:
        return self._events[event].reached.is_set()

    def reach(self, event: Event) -> None:
        _await(self._events[event])

    def drain(self, stream: Stream) -> None:
        mark = _Mark()
        self._work[stream].put(mark.reached.set)
        _await(mark)

    def reached_at(self, event: Event) -> float:
        return self._events[event].at

    def _run(self, stream: Stream, work: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
        while (piece := work.get()) is not None:
            time.sleep(self._delay())
            with self._changed:
                if not self._changed.wait_for(lambda: stream not in self._held, _PATIENCE_SECONDS):
                    raise TimeoutError(f"stream {stream} was held for too long")
            piece()

    def _handle(self) -> int:
        self._last_handle += 1
        return self._last_handle


class ThreadDevice(HostDevice):
    """`HostDevice` on threads. Most pieces of work run at once, some late, some very late."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        super().__init__(order=random.Random(seed + 1))  # for the order inside of a batch
        self.queues = ThreadQueues(lambda: rng.choice((0.0, 0.0, 0.0, 0.0005, 0.002, 0.02)))
        self._queues = self.queues  # type: ignore[assignment]  # the same methods


def _await(mark: _Mark) -> None:
    if not mark.reached.wait(_PATIENCE_SECONDS):
        raise TimeoutError("an event did not come")
