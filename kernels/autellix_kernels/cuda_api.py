"""The CUDA driver's functions that are used here, by ctypes, with prototypes as in cuda.h and errors as exceptions."""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from autellix_kernels.errors import DriverError

DRIVER = "libcuda.so.1"
"""By its bare name: containers get it from the machine, wherever the loader finds it."""

NOT_READY = 600  # CUDA_ERROR_NOT_READY
STREAM_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
HOST_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context
ATTRIBUTE_MULTIPROCESSORS = 16
ATTRIBUTE_UNIFIED_ADDRESSING = 41
ATTRIBUTE_CAPABILITY_MAJOR = 75
ATTRIBUTE_CAPABILITY_MINOR = 76
SOURCE_IN_STREAM_ORDER = 1  # CU_MEMCPY_SRC_ACCESS_ORDER_STREAM


class Location(ctypes.Structure):
    """CUmemLocation; only a hint, and of no meaning for memory from the driver's own allocators."""

    _fields_ = [("type", c_int), ("id", c_int)]


class CopyAttributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = [
        ("source_access_order", c_int),
        ("source_hint", Location),
        ("target_hint", Location),
        ("flags", c_uint),
    ]


_BATCH = (c_void_p, c_void_p, c_void_p, c_size_t, POINTER(CopyAttributes), POINTER(c_size_t), c_size_t)

# Pointers that are only handed through are c_void_p. The `_v2` names are what cuda.h turns the plain ones into.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuMemcpyAsync": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
}

_OPTIONAL: dict[str, tuple[Any, ...]] = {
    "cuMemcpyBatchAsync_v2": (*_BATCH, c_void_p),  # CUDA 13
    "cuMemcpyBatchAsync": (*_BATCH, POINTER(c_size_t), c_void_p),  # CUDA 12.8: also says which copy failed
}


class CudaApi:
    """The driver's library. `call` raises, `status` returns the CUresult."""

    def __init__(self, path: str | None = None) -> None:
        """Loads the driver: the machine's own, or the library at `path`.

        Raises:
            DriverError: there is none, or it is too old to have a function that is needed.
        """
        try:
            self._library = ctypes.CDLL(path or DRIVER)
            self._functions = {name: self._function(name, prototype) for name, prototype in _PROTOTYPES.items()}
        except (OSError, AttributeError) as error:
            raise DriverError("load", 0, f"no usable CUDA driver: {error}") from error
        self._functions |= {
            name: self._function(name, prototype)
            for name, prototype in _OPTIONAL.items()
            if hasattr(self._library, name)
        }

    def has(self, name: str) -> bool:
        """Whether the driver has this function."""
        return name in self._functions

    def status(self, name: str, *arguments: Any) -> int:
        """Calls a function of the driver and returns its CUresult."""
        return self._functions[name](*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver.

        Raises:
            DriverError: it did not return CUDA_SUCCESS.
        """
        code = self._functions[name](*arguments)
        if code != 0:
            self.check(name, code)

    def check(self, name: str, code: int) -> None:
        """Turns a CUresult that is not CUDA_SUCCESS into a `DriverError`."""
        if code != 0:
            raise DriverError(name, code, self._describe(code))

    def _function(self, name: str, prototype: tuple[Any, ...]) -> Callable[..., int]:
        function = self._library[name]
        function.argtypes = prototype
        function.restype = c_int
        return function

    def _describe(self, code: int) -> str:
        text = c_char_p()
        if self._library.cuGetErrorString(c_int(code), ctypes.byref(text)) != 0 or text.value is None:
            return "an error the driver has no text for"
        return text.value.decode()
