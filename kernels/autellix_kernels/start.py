"""Puts the parts together for a CUDA device: compiles the kernels, or falls back to torch operations and says so."""

import logging

from autellix_kernels.compiler import Nvrtc, resources
from autellix_kernels.cuda_device import CudaDevice
from autellix_kernels.device import Kernel
from autellix_kernels.errors import CompileError, DriverError
from autellix_kernels.layout import BlockLayout
from autellix_kernels.mover import KernelMover, MoveKernels, Mover, source_folder
from autellix_kernels.settings import SwapSettings

logger = logging.getLogger(__name__)


def compile_kernels(device: CudaDevice, nvrtc: Nvrtc | None = None) -> MoveKernels:
    """Compiles block_move.cu for the device and loads it. Takes about 0.1 s.

    Raises:
        CompileError: no NVRTC, or it refuses the source; with the log.
        DriverError: the driver refuses the result.
    """
    path = source_folder() / "block_move.cu"
    compiled = (nvrtc or Nvrtc.find()).compile(path.read_text(), path.name, device.info.capability)
    loaded: dict[str, Kernel] = device.load(compiled.image, ["gather_blocks", "scatter_blocks"])
    logger.info("compiled %s for %s on %s: %s", path.name, compiled.target, device.info.name, resources(compiled.log))
    return MoveKernels(loaded["gather_blocks"], loaded["scatter_blocks"])


def open_mover(
    device: CudaDevice, ordinal: int, layout: BlockLayout, settings: SwapSettings, nvrtc: Nvrtc | None = None
) -> Mover:
    """The mover by our kernels; by torch operations, several times slower, where they cannot be compiled. One warning
    tells why, `SwapStats.mover` that.

    Args:
        ordinal: number of the device, as torch knows it.
        nvrtc: the compiler; by default the one that is found.
    """
    try:
        return KernelMover(device, layout, compile_kernels(device, nvrtc), thread_blocks=settings.thread_blocks)
    except (CompileError, DriverError) as error:
        # torch takes seconds to import, and only this path needs it.
        from autellix_kernels.torch_mover import TorchMover, cuda_bytes, on_cuda_stream

        logger.warning(
            "swap kernels are not available on %s; blocks are moved by torch operations instead, which is slower: %s",
            device.info.name,
            error,
        )
        return TorchMover(layout, lambda address, size: cuda_bytes(address, size, ordinal), on_cuda_stream(ordinal))
