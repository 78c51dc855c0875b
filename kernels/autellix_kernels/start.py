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


def open_mover(device: CudaDevice, layout: BlockLayout, settings: SwapSettings) -> Mover:
    """The mover by our kernels, or by torch operations where they cannot be compiled or loaded.

    The reason is in one warning; `SwapStats.mover` keeps saying which it is.

    Raises:
        DriverError, LayoutError: as `KernelMover`.
    """
    try:
        kernels = compile_kernels(device)
    except (CompileError, DriverError) as error:
        # torch takes seconds to import, and only this path needs it.
        from autellix_kernels.torch_mover import TorchMover, cuda_bytes, on_cuda_stream

        ordinal, name = device.ordinal, device.info.name
        logger.warning("no swap kernels on %s, torch operations move blocks instead: %s", name, error)
        return TorchMover(layout, lambda address, size: cuda_bytes(address, size, ordinal), on_cuda_stream(ordinal))
    return KernelMover(device, layout, kernels, thread_blocks=settings.thread_blocks)
