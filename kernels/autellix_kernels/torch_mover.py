"""The same moves by torch operations: the fall-back, and a second reference in tests.

One index operation per tensor of the cache.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from autellix_kernels.device import Stream
from autellix_kernels.layout import BlockLayout, IdArray

TensorAt: TypeAlias = Callable[[int, int], torch.Tensor]
"""Bytes at an address, as a one-dimensional tensor of uint8 that shares the memory."""

Submit: TypeAlias = Callable[[Stream, Callable[[], None]], None]
"""Runs a function so that the torch operations in it are in the order of the stream."""


class TorchMover:
    """`Mover` by `index_select` and `index_copy_`. On CUDA each call waits until the ids are on the GPU."""

    name = "torch"
    max_blocks = 2**31 - 1

    def __init__(self, layout: BlockLayout, tensor_at: TensorAt, submit: Submit) -> None:
        self._layout = layout
        self._tensor_at = tensor_at
        self._submit = submit
        self._caches = [
            torch.as_strided(
                tensor_at(region.base, region.end - region.base),
                (region.blocks, region.fragment_bytes),
                (region.block_stride, 1),
            )
            for region in layout.regions
        ]

    def gather(self, blocks: IdArray, staging: int, stream: Stream) -> None:
        """See `Mover`."""
        ids = blocks.copy()
        self._submit(stream, lambda: self._gather(ids, staging))

    def scatter(self, blocks: IdArray, staging: int, stream: Stream) -> None:
        """See `Mover`."""
        ids = blocks.copy()
        self._submit(stream, lambda: self._scatter(ids, staging))

    def close(self) -> None:
        """See `Mover`."""
        self._caches.clear()

    def _gather(self, blocks: IdArray, staging: int) -> None:
        index, staged = self._operands(blocks, staging)
        for cache, fragment in zip(self._caches, staged, strict=True):
            fragment.copy_(cache.index_select(0, index))

    def _scatter(self, blocks: IdArray, staging: int) -> None:
        index, staged = self._operands(blocks, staging)
        for cache, fragment in zip(self._caches, staged, strict=True):
            cache.index_copy_(0, index, fragment)

    def _operands(self, blocks: IdArray, staging: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        index = torch.from_numpy(blocks).to(self._caches[0].device, torch.int64)
        rows = self._tensor_at(staging, blocks.size * self._layout.block_bytes).view(
            blocks.size, self._layout.block_bytes
        )
        places = zip(self._layout.staging_offsets, self._layout.regions, strict=True)
        return index, [rows[:, offset : offset + region.fragment_bytes] for offset, region in places]


class _CudaBytes:
    """Memory that torch did not allocate, described the way it understands."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def cuda_bytes(address: int, size: int, ordinal: int) -> torch.Tensor:
    """`TensorAt` for GPU number `ordinal`."""
    return torch.as_tensor(_CudaBytes(address, size), device=torch.device("cuda", ordinal))


def on_cuda_stream(ordinal: int) -> Submit:
    """`Submit` for GPU number `ordinal`."""

    def submit(stream: Stream, work: Callable[[], None]) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, torch.device("cuda", ordinal))):
            work()

    return submit
