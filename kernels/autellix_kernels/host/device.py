"""`Device` on the CPU.

Streams are queues; what runs next among their heads is drawn by chance, so a missing event shows as wrong bytes.
"""

import bisect
import ctypes
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autellix_kernels.device import DeviceInfo, Event, Kernel, KernelArgument, Stream
from autellix_kernels.errors import DriverError, SwapError
from autellix_kernels.layout import AddressArray

HostKernel = Callable[[int, int, Sequence[KernelArgument]], None]
"""Runs a whole grid: thread blocks, threads, arguments."""

_ALIGNMENT = 256


@dataclass
class _EventState:
    """`recorded` counts records submitted, `passed` is the newest of them that was reached."""

    recorded: int = 0
    passed: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class _Work:
    run: Callable[[], None]


@dataclass(frozen=True)
class _Record:
    event: Event
    ticket: int


@dataclass(frozen=True)
class _Wait:
    event: Event
    ticket: int


@dataclass
class _Memory:
    """Allocations by address; each keeps its buffer alive."""

    starts: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    buffers: dict[int, "ctypes.Array[ctypes.c_char]"] = field(default_factory=dict)

    def take(self, size: int) -> int:
        buffer = ctypes.create_string_buffer(size + _ALIGNMENT)
        address = -(-ctypes.addressof(buffer) // _ALIGNMENT) * _ALIGNMENT
        bisect.insort(self.starts, address)
        self.sizes[address] = size
        self.buffers[address] = buffer
        return address

    def give_back(self, address: int) -> None:
        if address not in self.sizes:
            raise DriverError("free", 1, f"{address:#x} was not allocated here")
        self.starts.remove(address)
        del self.sizes[address], self.buffers[address]

    def check(self, address: int, size: int) -> None:
        place = bisect.bisect_right(self.starts, address) - 1
        if place < 0 or address + size > self.starts[place] + self.sizes[self.starts[place]]:
            raise DriverError("copy", 700, f"{size} bytes at {address:#x} are not inside one allocation")


class HostDevice:
    """Implements `Device`. Host and "GPU" memory are both the process's own.

    Args:
        order: draws what runs next among streams whose head is ready, and how much runs between two calls; None:
            everything runs at once.
        pinned_limit: bytes of pinned memory that can be had.
        clock: seconds, for events.
    """

    def __init__(
        self,
        order: random.Random | None = None,
        *,
        pinned_limit: int | None = None,
        batched_copy: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.info = DeviceInfo(name="host", capability=(0, 0), multiprocessors=1, batched_copy=batched_copy)
        self._order = order
        self._clock = clock
        self._device_memory = _Memory()
        self._pinned_memory = _Memory()
        self._pinned_rest = pinned_limit
        self._streams: dict[Stream, deque[_Work | _Record | _Wait]] = {}
        self._events: dict[Event, _EventState] = {}
        self._kernels: list[HostKernel] = []
        self._next_handle = 1

    def add_kernel(self, kernel: HostKernel) -> Kernel:
        """Makes a function launchable."""
        self._kernels.append(kernel)
        return Kernel(len(self._kernels) - 1)

    def submit(self, stream: Stream, work: Callable[[], None]) -> None:
        """Puts a function on a stream, as a kernel of the model would be."""
        self._put(stream, _Work(work))

    def view(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """The bytes at an address; a test's eyes and hands."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    @property
    def live_objects(self) -> int:
        """Allocations, streams and events that were not given back."""
        return len(self._device_memory.sizes) + len(self._pinned_memory.sizes) + len(self._streams) + len(self._events)

    def allocate(self, size: int) -> int:
        """See `Device`."""
        return self._device_memory.take(size)

    def free(self, address: int) -> None:
        """See `Device`."""
        self._device_memory.give_back(address)

    def allocate_pinned(self, size: int) -> int:
        """See `Device`."""
        if self._pinned_rest is not None:
            if size > self._pinned_rest:
                raise DriverError("allocate_pinned", 2, "out of memory")
            self._pinned_rest -= size
        return self._pinned_memory.take(size)

    def free_pinned(self, address: int) -> None:
        """See `Device`."""
        self._pinned_memory.give_back(address)

    def create_stream(self) -> Stream:
        """See `Device`."""
        stream = Stream(self._handle())
        self._streams[stream] = deque()
        return stream

    def destroy_stream(self, stream: Stream) -> None:
        """See `Device`."""
        self.synchronize_stream(stream)
        del self._streams[stream]

    def synchronize_stream(self, stream: Stream) -> None:
        """See `Device`."""
        while self._streams[stream]:
            self._step()

    def create_event(self) -> Event:
        """See `Device`."""
        event = Event(self._handle())
        self._events[event] = _EventState()
        return event

    def destroy_event(self, event: Event) -> None:
        """See `Device`. Here a wait that is still on a stream is let go: destroy events only after they have passed."""
        del self._events[event]

    def record(self, event: Event, stream: Stream) -> None:
        """See `Device`."""
        state = self._events[event]
        state.recorded += 1
        self._put(stream, _Record(event, state.recorded))

    def wait(self, stream: Stream, event: Event) -> None:
        """See `Device`."""
        self._put(stream, _Wait(event, self._events[event].recorded))

    def passed(self, event: Event) -> bool:
        """See `Device`. Lets a random number of things happen first."""
        self._drift()
        state = self._events[event]
        return state.passed >= state.recorded

    def synchronize(self, event: Event) -> None:
        """See `Device`."""
        state = self._events[event]
        while state.passed < state.recorded:
            self._step()

    def seconds_between(self, start: Event, end: Event) -> float:
        """See `Device`."""
        return self._events[end].at - self._events[start].at

    def copy(self, to: int, source: int, size: int, stream: Stream) -> None:
        """See `Device`. Both ends may also be memory of the caller's own, which must then stay."""
        self._put(stream, _Work(lambda: _move(to, source, size)))

    def copy_batch(self, to: AddressArray, source: AddressArray, sizes: AddressArray, stream: Stream) -> None:
        """See `Device`.

        Checks that every copy is inside an allocation of the device at one end and of pinned memory at the other.
        """
        copies = list(zip(to.tolist(), source.tolist(), sizes.tolist(), strict=True))
        if not copies:
            raise DriverError("copy_batch", 1, "an empty batch")
        if self._order is not None:
            self._order.shuffle(copies)
        self._put(stream, _Work(lambda: self._move_all(copies)))

    def launch(
        self, kernel: Kernel, thread_blocks: int, threads: int, arguments: Sequence[KernelArgument], stream: Stream
    ) -> None:
        """See `Device`."""
        function = self._kernels[kernel]
        kept = [type(argument).from_buffer_copy(argument) for argument in arguments]
        self._put(stream, _Work(lambda: function(thread_blocks, threads, kept)))

    def _move_all(self, copies: Sequence[tuple[int, int, int]]) -> None:
        for to, source, size in copies:
            for address in (to, source):
                memory = self._pinned_memory if self._is_pinned(address) else self._device_memory
                memory.check(address, size)
            _move(to, source, size)

    def _is_pinned(self, address: int) -> bool:
        place = bisect.bisect_right(self._pinned_memory.starts, address) - 1
        return (
            place >= 0
            and address
            < self._pinned_memory.starts[place] + self._pinned_memory.sizes[self._pinned_memory.starts[place]]
        )

    def _put(self, stream: Stream, item: _Work | _Record | _Wait) -> None:
        self._streams[stream].append(item)
        self._drift()

    def _drift(self) -> None:
        """Lets things happen that nobody waits for."""
        if self._order is None:
            while self._ready():
                self._step()
            return
        for _ in range(self._order.choice((0, 0, 0, 1, 2, 8))):
            if self._ready():
                self._step()

    def _ready(self) -> list[Stream]:
        return [stream for stream, items in self._streams.items() if items and self._can_run(items[0])]

    def _can_run(self, item: _Work | _Record | _Wait) -> bool:
        return (
            not isinstance(item, _Wait)
            or item.event not in self._events
            or self._events[item.event].passed >= item.ticket
        )

    def _step(self) -> None:
        ready = self._ready()
        if not ready:
            raise SwapError("deadlock: every stream waits for an event that nothing on any stream will pass")
        items = self._streams[self._order.choice(ready) if self._order else ready[0]]
        item = items.popleft()
        if isinstance(item, _Work):
            item.run()
        elif isinstance(item, _Record) and item.event in self._events:
            state = self._events[item.event]
            state.passed = max(state.passed, item.ticket)
            state.at = self._clock()

    def _handle(self) -> int:
        self._next_handle += 1
        return self._next_handle


def _move(to: int, source: int, size: int) -> None:
    ctypes.memmove(to, source, size)
