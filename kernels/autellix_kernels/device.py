"""What the swap engine needs of a device: memory, streams, events, copies, launches.

Implemented for CUDA and for the host.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NewType, Protocol, TypeAlias

from autellix_kernels.layout import AddressArray

Stream = NewType("Stream", int)
"""A CUstream as an integer. torch's `Stream.cuda_stream` is one too."""

Event = NewType("Event", int)
Kernel = NewType("Kernel", int)

KernelArgument: TypeAlias = "ctypes._SimpleCData[Any] | ctypes.Structure"


@dataclass(frozen=True)
class DeviceInfo:
    """Which device this is.

    Attributes:
        name: as the driver calls it.
        capability: compute capability (major, minor).
        multiprocessors: number of SMs.
        batched_copy: whether `Device.copy_batch` works (CUDA 12.8 and later).
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    batched_copy: bool


class Device(Protocol):
    """All addresses are plain integers in one address space. Nothing here blocks, except where it says so.

    Every call may raise `DriverError`. An error of a kernel or copy shows at a later call, as always with CUDA.
    """

    @property
    def info(self) -> DeviceInfo:
        """Which device this is."""

    def allocate(self, size: int) -> int:
        """`size` bytes of device memory, aligned to 256 bytes. May block."""

    def free(self, address: int) -> None:
        """Gives back what `allocate` gave. The caller has seen to it that nothing uses it. May block."""

    def allocate_pinned(self, size: int) -> int:
        """`size` bytes of page-locked host memory that the device reaches under the same address.

        Blocks while pages are locked.
        """

    def free_pinned(self, address: int) -> None:
        """Gives back what `allocate_pinned` gave. The caller has seen to it that nothing uses it. May block."""

    def create_stream(self) -> Stream:
        """A stream that runs beside all others, the default stream too."""

    def destroy_stream(self, stream: Stream) -> None:
        """Ends a stream; what is on it still runs."""

    def synchronize_stream(self, stream: Stream) -> None:
        """Blocks until all that is on the stream has ended."""

    def create_event(self) -> Event:
        """An event that counts as passed until it is recorded."""

    def destroy_event(self, event: Event) -> None:
        """Ends an event; waits for it that are on streams still hold."""

    def record(self, event: Event, stream: Stream) -> None:
        """The event passes when all that is on the stream now has ended. An earlier record is forgotten."""

    def wait(self, stream: Stream, event: Event) -> None:
        """What is put on the stream from now on starts after the event's last record has passed."""

    def passed(self, event: Event) -> bool:
        """Whether the event's last record has passed."""

    def synchronize(self, event: Event) -> None:
        """Blocks until the event's last record has passed."""

    def seconds_between(self, start: Event, end: Event) -> float:
        """Time on the device from one passed event to another."""

    def copy(self, to: int, source: int, size: int, stream: Stream) -> None:
        """Copies `size` bytes in stream order. Asynchronous only where host memory is pinned."""

    def copy_batch(self, to: AddressArray, source: AddressArray, sizes: AddressArray, stream: Stream) -> None:
        """Copies in stream order as one batch, in any order among themselves.

        The arrays are flat, not empty, and are read during the call.
        """

    def launch(
        self, kernel: Kernel, thread_blocks: int, threads: int, arguments: Sequence[KernelArgument], stream: Stream
    ) -> None:
        """Starts a kernel in stream order. Arguments are copied during the call."""
