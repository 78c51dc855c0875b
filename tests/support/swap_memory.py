"""A KV cache in the memory of a `HostDevice`, filled with random bytes, and what numpy says a move must give."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import BlockLayout, IdArray, Region

Bytes = npt.NDArray[np.uint8]

GUARD = 64
"""Bytes around every tensor that must never change."""


@dataclass(frozen=True)
class Shape:
    """One tensor: bytes of a fragment, unused bytes between two, and how far its base is from 16-byte alignment."""

    fragment_bytes: int
    gap: int = 0
    shift: int = 0


class Cache:
    """Tensors of the given shapes, each in an allocation of its own between guards."""

    def __init__(self, device: HostDevice, shapes: Sequence[Shape], blocks: int, rng: np.random.Generator) -> None:
        self.buffers: list[Bytes] = []
        regions = []
        for shape in shapes:
            stride = shape.fragment_bytes + shape.gap
            size = GUARD + shape.shift + blocks * stride + GUARD
            address = device.allocate(size)
            buffer = device.view(address, size)
            buffer[:] = random_bytes(rng, size)
            self.buffers.append(buffer)
            regions.append(Region(address + GUARD + shape.shift, blocks, stride, shape.fragment_bytes))
        self.layout = BlockLayout(tuple(regions))
        self._shapes = tuple(shapes)

    def snapshot(self) -> list[Bytes]:
        """A copy of all bytes, guards included."""
        return [buffer.copy() for buffer in self.buffers]

    def fragments(self, buffers: Sequence[Bytes], region: int) -> Bytes:
        """View of one tensor's fragments, shape (blocks, fragment bytes), in `buffers` as given by `snapshot`."""
        shape = self._shapes[region]
        start, stride = GUARD + shape.shift, shape.fragment_bytes + shape.gap
        body = buffers[region][start : start + self.layout.blocks * stride]
        return body.reshape(self.layout.blocks, stride)[:, : shape.fragment_bytes]

    def gathered(self, buffers: Sequence[Bytes], blocks: IdArray, staged: Bytes) -> Bytes:
        """What `staged`, shape (blocks, block bytes), must hold after a gather; padding as it was."""
        result = staged.copy()
        for region, offset in enumerate(self.layout.staging_offsets):
            fragments = self.fragments(buffers, region)
            result[:, offset : offset + fragments.shape[1]] = fragments[blocks]
        return result

    def scattered(self, buffers: Sequence[Bytes], blocks: IdArray, staged: Bytes) -> list[Bytes]:
        """What all buffers must hold after a scatter."""
        result = [buffer.copy() for buffer in buffers]
        for region, offset in enumerate(self.layout.staging_offsets):
            fragments = self.fragments(result, region)
            fragments[blocks] = staged[:, offset : offset + fragments.shape[1]]
        return result


def random_bytes(rng: np.random.Generator, size: int) -> Bytes:
    """Never zeros: they hide what was not written."""
    return np.frombuffer(rng.bytes(size), dtype=np.uint8)
