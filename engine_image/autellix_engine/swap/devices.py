"""Opens a swap engine for the KV cache of this worker: on its GPU, or on the CPU where the model runs there."""

import ctypes
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from vllm.v1.kv_offload.base import CanonicalKVCaches

from autellix_engine.swap.settings import SIZE_SETTING, SwapSettings
from autellix_kernels.cuda_device import CudaDevice
from autellix_kernels.device import Device, Stream
from autellix_kernels.engine import SwapEngine
from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import BlockLayout, Region
from autellix_kernels.mover import Mover
from autellix_kernels.pool import PAGE_BYTES, SLAB_BYTES, HostPool, PinnedMemory, read_memory_facts
from autellix_kernels.start import open_mover
from autellix_kernels.torch_mover import TorchMover

logger: Final = logging.getLogger("vllm.autellix.swap")


class ModelStream(Protocol):
    """The stream on which the model computes."""

    def current(self) -> Stream:
        """Transfers are ordered after what is on it."""

    def settle(self) -> None:
        """Called after `SwapEngine.hold`: returns as soon as the model may be given more work."""


class CudaModelStream:
    """torch's current stream. What it was told to wait for holds for all later work: nobody else has to wait."""

    def current(self) -> Stream:
        """See `ModelStream`."""
        return Stream(torch.cuda.current_stream().cuda_stream)

    def settle(self) -> None:
        """See `ModelStream`."""


class HostModelStream:
    """The model on a CPU computes in this thread, on no stream: so this thread waits for what its stream waits for."""

    def __init__(self, device: HostDevice) -> None:
        self._device = device
        self._stream = device.create_stream()

    def current(self) -> Stream:
        """See `ModelStream`."""
        return self._stream

    def settle(self) -> None:
        """See `ModelStream`."""
        self._device.synchronize_stream(self._stream)


@dataclass(frozen=True)
class OpenEngine:
    """A swap engine and what it works on."""

    engine: SwapEngine
    model: ModelStream
    close: Callable[[], None]


def block_layout(kv_caches: CanonicalKVCaches) -> BlockLayout:
    """Where the blocks of this worker's KV cache lie. Raises LayoutError."""
    return BlockLayout(
        tuple(
            Region(
                cache.tensor.data_ptr(),
                cache.tensor.shape[0],
                cache.tensor.stride(0) * cache.tensor.element_size(),
                cache.page_size_bytes,
            )
            for cache in kv_caches.tensors
        )
    )


def open_engine(
    kv_caches: CanonicalKVCaches,
    slots: int,
    settings: SwapSettings,
    make_host_device: Callable[[], HostDevice] = HostDevice,
) -> OpenEngine:
    """Takes the pool's memory and makes everything ready. Blocks, about a second for 4 GiB.

    Raises:
        PinnedMemoryError: the pool cannot be had; the message names the setting.
        LayoutError, DriverError, SettingError: this KV cache, GPU or setting cannot be used.
    """
    layout = block_layout(kv_caches)
    place = kv_caches.tensors[0].tensor.device
    if place.type == "cuda":
        cuda = CudaDevice(place.index or 0)
        return _assemble(
            cuda, layout, open_mover(cuda, layout, settings.engine_settings()), CudaModelStream(), slots, settings
        )
    host = make_host_device()
    for region in layout.regions:
        host.adopt(region.base, region.end - region.base)
    mover = TorchMover(layout, _bytes_at, host.submit)
    return _assemble(host, layout, mover, HostModelStream(host), slots, settings)


def _assemble(
    device: Device, layout: BlockLayout, mover: Mover, model: ModelStream, slots: int, settings: SwapSettings
) -> OpenEngine:
    slabs = -(-slots * layout.block_bytes // SLAB_BYTES)
    per_slab = -(-slots // slabs) * layout.block_bytes
    slab_bytes = -(-per_slab // PAGE_BYTES) * PAGE_BYTES
    facts = read_memory_facts()
    pinned = PinnedMemory(device, slabs * slab_bytes, setting=SIZE_SETTING, facts=facts, slab_bytes=slab_bytes)
    engine = SwapEngine(device, layout, HostPool(pinned.slabs, layout.block_bytes), mover, settings.engine_settings())
    logger.info(
        "Swapping KV cache on %s by %s: %d slots of %d bytes (%d fragments)",
        device.info.name,
        mover.name,
        slots,
        layout.block_bytes,
        len(layout.regions),
    )

    def close() -> None:
        engine.close()
        mover.close()
        pinned.close()

    return OpenEngine(engine, model, close)


def _bytes_at(address: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)
