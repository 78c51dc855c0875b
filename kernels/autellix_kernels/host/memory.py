"""Memory of the CPU stand-in, which knows what belongs to it."""

import bisect
import ctypes

from autellix_kernels.errors import DriverError

_ALIGNMENT = 256


class Allocations:
    """Pieces of the process's memory by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._buffers: dict[int, ctypes.Array[ctypes.c_char] | None] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def take(self, size: int) -> int:
        """Address of `size` bytes, a multiple of 256."""
        buffer = ctypes.create_string_buffer(size + _ALIGNMENT)
        address = -(-ctypes.addressof(buffer) // _ALIGNMENT) * _ALIGNMENT
        self._enter(address, size, buffer)
        return address

    def adopt(self, address: int, size: int) -> None:
        """Counts memory of somebody else's in, until `give_back`; it must stay meanwhile."""
        self._enter(address, size, None)

    def give_back(self, address: int) -> None:
        """Ends a piece.

        Raises:
            DriverError: it is none.
        """
        if address not in self._sizes:
            raise DriverError("free", 1, f"{address:#x} was not allocated here")
        self._starts.remove(address)
        del self._sizes[address], self._buffers[address]

    def _enter(self, address: int, size: int, buffer: "ctypes.Array[ctypes.c_char] | None") -> None:
        bisect.insort(self._starts, address)
        self._sizes[address] = size
        self._buffers[address] = buffer

    def holds(self, address: int, size: int) -> bool:
        """Whether `size` bytes from `address` on lie in one piece."""
        place = bisect.bisect_right(self._starts, address) - 1
        return place >= 0 and address + size <= self._starts[place] + self._sizes[self._starts[place]]
