"""NVRTC by ctypes: compiles CUDA C++ for the GPU at hand, at start, in about 0.1 s.

Needs no GPU, no driver and no nvcc.
"""

import ctypes
import importlib.metadata
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autellix_kernels.errors import CompileError

_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_SYSTEM_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_COMPILATION_FAILED = 6  # NVRTC_ERROR_COMPILATION


@dataclass(frozen=True)
class Compiled:
    """What a compilation gave.

    Attributes:
        image: a cubin, or NUL-terminated PTX where NVRTC does not know the GPU; the driver loads either.
        target: "sm_90", or "compute_120" for PTX.
        log: what the compiler said, with ptxas's report on registers and spills.
    """

    image: bytes
    target: str
    log: str


@dataclass(frozen=True)
class KernelResources:
    """What ptxas reports for one kernel, in registers per thread and bytes per thread."""

    kernel: str
    registers: int
    stack_bytes: int
    spill_bytes: int


class Nvrtc:
    """One loaded NVRTC library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = ctypes.c_char_p

    @classmethod
    def find(cls) -> "Nvrtc":
        """Loads NVRTC from the wheel that torch brings, else from the system.

        Raises:
            CompileError: it is nowhere; the text lists where it was looked for.
        """
        tried: list[str] = []
        for path in _candidates():
            try:
                return cls(ctypes.CDLL(path))
            except OSError as error:
                tried.append(str(error))
        raise CompileError(f"NVRTC was not found; install one of {', '.join(_WHEELS)}", "\n".join(tried))

    @property
    def version(self) -> tuple[int, int]:
        """Version of CUDA that this NVRTC belongs to."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("nvrtcVersion", self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    @property
    def architectures(self) -> tuple[int, ...]:
        """Architectures for which cubins can be made, as 90 for sm_90."""
        count = ctypes.c_int()
        self._check("nvrtcGetNumSupportedArchs", self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        values = (ctypes.c_int * count.value)()
        self._check("nvrtcGetSupportedArchs", self._library.nvrtcGetSupportedArchs(values))
        return tuple(values)

    def compile(self, source: str, name: str, capability: tuple[int, int]) -> Compiled:
        """Compiles `source` for a GPU of that compute capability.

        Args:
            name: file name for messages.

        Raises:
            CompileError: with the compiler's log.
        """
        target = choose_target(capability, self.architectures)
        program = ctypes.c_void_p()
        status = self._library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        self._check("nvrtcCreateProgram", status)
        try:
            options = [f"--gpu-architecture={target}", "--std=c++17", "--ptxas-options=-v"]
            array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            status = self._library.nvrtcCompileProgram(program, len(options), array)
            log = self._fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status == _COMPILATION_FAILED:
                raise CompileError(
                    f"{name} does not compile for {target} with NVRTC {'.'.join(map(str, self.version))}", log
                )
            self._check("nvrtcCompileProgram", status, log)
            return Compiled(self._fetch(program, "CUBIN" if target.startswith("sm_") else "PTX"), target, log)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"nvrtcGet{what}Size", self._library[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(f"nvrtcGet{what}", self._library[f"nvrtcGet{what}"](program, buffer))
        return buffer.raw

    def _check(self, call: str, status: int, log: str = "") -> None:
        if status != 0:
            raise CompileError(f"{call}: {self._library.nvrtcGetErrorString(status).decode()}", log)


def choose_target(capability: tuple[int, int], architectures: Sequence[int]) -> str:
    """A cubin for exactly this GPU, or PTX that the driver finishes for one newer than NVRTC.

    Raises:
        CompileError: the GPU is older than all that NVRTC knows.
    """
    wanted = capability[0] * 10 + capability[1]
    if wanted in architectures:
        return f"sm_{wanted}"
    older = [known for known in architectures if known < wanted]
    if not older:
        major, minor = capability
        raise CompileError(f"NVRTC has no target for compute capability {major}.{minor}, only {list(architectures)}")
    return f"compute_{max(older)}"


def resources(log: str) -> tuple[KernelResources, ...]:
    """ptxas's report in a compiler's log, one entry per kernel. Empty for PTX, which ptxas has not seen."""
    pattern = re.compile(
        r"Function properties for (?P<kernel>\w+)\s+.*?(?P<stack>\d+) bytes stack frame, "
        r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
        re.DOTALL,
    )
    return tuple(
        KernelResources(m["kernel"], int(m["registers"]), int(m["stack"]), int(m["stores"]) + int(m["loads"]))
        for m in pattern.finditer(log)
    )


def _candidates() -> Iterator[str]:
    """Paths and names to load, best first."""
    for wheel in _WHEELS:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        libraries = [
            Path(str(file.locate())) for file in files if file.name.startswith(("libnvrtc.so", "libnvrtc-builtins.so"))
        ]
        for library in sorted(libraries, key=lambda path: "builtins" not in path.name):
            if "builtins" in library.name:
                # NVRTC opens this by its bare name; loaded beforehand, it is found wherever the wheel lies.
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            else:
                yield str(library)
    yield from _SYSTEM_NAMES
