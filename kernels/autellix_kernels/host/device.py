"""`Device` on the CPU, for tests and for runs without a GPU: what events do not forbid happens, in random order."""

import ctypes
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from autellix_kernels.device import DeviceInfo, Event, Kernel, KernelArgument, Stream
from autellix_kernels.errors import DriverError
from autellix_kernels.host.memory import Allocations
from autellix_kernels.host.streams import StreamQueues
from autellix_kernels.layout import AddressArray

HostKernel = Callable[[int, int, Sequence[KernelArgument]], None]
"""Runs a whole grid: thread blocks, threads, arguments."""


class HostDevice:
    """Implements `Device`. Host and "GPU" memory are both the process's own.

    Args:
        order: draws what runs next and how much runs when nobody waits; None: everything runs as soon as it may.
        pinned_limit: bytes of pinned memory that can be had.
        batched_copy: whether there is one.
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
        self._queues = StreamQueues(order, clock)
        self._device_memory = Allocations()
        self._pinned_memory = Allocations()
        self._pinned_rest = pinned_limit
        self._kernels: list[HostKernel] = []

    def add_kernel(self, kernel: HostKernel) -> Kernel:
        """Makes a function launchable."""
        self._kernels.append(kernel)
        return Kernel(len(self._kernels) - 1)

    def submit(self, stream: Stream, work: Callable[[], None]) -> None:
        """Puts a function on a stream, as a kernel of the model would be."""
        self._queues.put(stream, work)

    def stall(self, stream: Stream) -> None:
        """Nothing on the stream runs until `resume`, as when a copy or kernel takes long."""
        self._queues.stall(stream)

    def resume(self, stream: Stream) -> None:
        """Ends a stall."""
        self._queues.resume(stream)

    def adopt(self, address: int, size: int) -> None:
        """Counts somebody else's memory, as a KV cache of torch, to the device until `free`; it must stay meanwhile."""
        self._device_memory.adopt(address, size)

    def view(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """The bytes at an address."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    @property
    def live_objects(self) -> int:
        """Allocations, streams and events that were not given back."""
        return len(self._device_memory) + len(self._pinned_memory) + len(self._queues)

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
        return self._queues.create_stream()

    def destroy_stream(self, stream: Stream) -> None:
        """See `Device`."""
        self._queues.destroy_stream(stream)

    def synchronize_stream(self, stream: Stream) -> None:
        """See `Device`."""
        self._queues.drain(stream)

    def create_event(self) -> Event:
        """See `Device`."""
        return self._queues.create_event()

    def destroy_event(self, event: Event) -> None:
        """See `Device`."""
        self._queues.destroy_event(event)

    def record(self, event: Event, stream: Stream) -> None:
        """See `Device`."""
        self._queues.record(event, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        """See `Device`."""
        self._queues.wait(stream, event)

    def passed(self, event: Event) -> bool:
        """See `Device`."""
        return self._queues.passed(event)

    def synchronize(self, event: Event) -> None:
        """See `Device`."""
        self._queues.reach(event)

    def seconds_between(self, start: Event, end: Event) -> float:
        """See `Device`."""
        return self._queues.reached_at(end) - self._queues.reached_at(start)

    def copy(self, to: int, source: int, size: int, stream: Stream) -> None:
        """See `Device`. Both ends may also be memory of the caller's own, which must then stay."""
        self._queues.put(stream, lambda: _move(to, source, size))

    def copy_batch(self, to: AddressArray, source: AddressArray, sizes: AddressArray, stream: Stream) -> None:
        """See `Device`. Refuses an empty batch, as the driver does, and ends that are not in memory of this device."""
        copies = list(zip(to.tolist(), source.tolist(), sizes.tolist(), strict=True))
        if not copies:
            raise DriverError("copy_batch", 1, "an empty batch")
        for target, origin, size in copies:
            for address in (target, origin):
                if not (self._device_memory.holds(address, size) or self._pinned_memory.holds(address, size)):
                    raise DriverError("copy_batch", 1, f"{size} bytes at {address:#x} are not in memory of the device")
        if self._order is not None:
            self._order.shuffle(copies)

        def run() -> None:
            for target, origin, size in copies:
                _move(target, origin, size)

        self._queues.put(stream, run)

    def launch(
        self, kernel: Kernel, thread_blocks: int, threads: int, arguments: Sequence[KernelArgument], stream: Stream
    ) -> None:
        """See `Device`."""
        function = self._kernels[kernel]
        kept = [type(argument).from_buffer_copy(argument) for argument in arguments]
        self._queues.put(stream, lambda: function(thread_blocks, threads, kept))


def _move(to: int, source: int, size: int) -> None:
    ctypes.memmove(to, source, size)
