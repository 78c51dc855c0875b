"""Builds block_move.cu for the CPU with g++ and makes it launchable on a `HostDevice`."""

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from autellix_kernels.device import KernelArgument
from autellix_kernels.errors import CompileError, SwapError
from autellix_kernels.host.device import HostDevice, HostKernel
from autellix_kernels.mover import MoveKernels, source_folder

FLAGS = ("-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC")


def build(folder: Path) -> Path:
    """Compiles into `folder` and returns the library's path. Takes less than a second.

    Raises:
        CompileError: no g++, or it refuses the source; with its output.
    """
    library = folder / "libblock_move_host.so"
    command = ["g++", *FLAGS, str(source_folder() / "host_entry.cpp"), "-o", str(library)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise CompileError("g++ was not found; the CPU build of the kernels needs it") from error
    except subprocess.CalledProcessError as error:
        raise CompileError("block_move.cu does not compile for the CPU", error.stderr) from error
    return library


def load(device: HostDevice, library: Path) -> MoveKernels:
    """Loads a library that `build` made."""
    functions = ctypes.CDLL(str(library))
    return MoveKernels(
        device.add_kernel(_kernel(functions, "host_gather_blocks")),
        device.add_kernel(_kernel(functions, "host_scatter_blocks")),
    )


def _kernel(library: ctypes.CDLL, name: str) -> HostKernel:
    function = library[name]
    function.restype = ctypes.c_longlong

    def run(thread_blocks: int, threads: int, arguments: Sequence[KernelArgument]) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        misaligned = function(ctypes.c_uint(thread_blocks), ctypes.c_uint(threads), pointers)
        if misaligned:
            raise SwapError(f"{name}: {misaligned} misaligned accesses, which a GPU would not forgive")

    return run
