"""`Device` for CUDA, on the driver API.

It shares the primary context with torch, so torch's addresses and streams are valid here.
"""

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p

from autellix_kernels import cuda_api
from autellix_kernels.cuda_api import CudaApi
from autellix_kernels.device import DeviceInfo, Event, Kernel, KernelArgument, Stream
from autellix_kernels.errors import DriverError
from autellix_kernels.layout import AddressArray


class CudaDevice:
    """One GPU. All calls come from the thread that made this object: CUDA contexts belong to threads."""

    def __init__(self, ordinal: int = 0, api: CudaApi | None = None) -> None:
        """Makes the GPU's primary context current in this thread.

        Args:
            ordinal: number of the GPU as the process sees it (after CUDA_VISIBLE_DEVICES).
            api: the driver; by default the machine's own.

        Raises:
            DriverError: no driver, no such GPU, or one without unified addressing.
        """
        self.ordinal = ordinal
        self._api = api or CudaApi()
        self._api.call("cuInit", 0)
        device = c_int()
        self._api.call("cuDeviceGet", byref(device), ordinal)
        self._device = device.value
        if not self._attribute(cuda_api.ATTRIBUTE_UNIFIED_ADDRESSING):
            raise DriverError("cuDeviceGetAttribute", 0, "the GPU does not share one address space with the host")
        name = ctypes.create_string_buffer(128)
        self._api.call("cuDeviceGetName", name, len(name), self._device)
        context = c_void_p()
        self._api.call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._api.call("cuCtxSetCurrent", context)
        self._modules: list[int] = []
        self._attributes = cuda_api.CopyAttributes(source_access_order=cuda_api.SOURCE_IN_STREAM_ORDER)
        self.info = DeviceInfo(
            name=name.value.decode(),
            capability=(
                self._attribute(cuda_api.ATTRIBUTE_CAPABILITY_MAJOR),
                self._attribute(cuda_api.ATTRIBUTE_CAPABILITY_MINOR),
            ),
            multiprocessors=self._attribute(cuda_api.ATTRIBUTE_MULTIPROCESSORS),
            batched_copy=self._api.has("cuMemcpyBatchAsync_v2") or self._api.has("cuMemcpyBatchAsync"),
        )

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Kernel]:
        """Loads a cubin or PTX and looks up its kernels. Blocks."""
        module = c_void_p()
        self._api.call("cuModuleLoadData", byref(module), c_char_p(image))
        self._modules.append(_handle(module))
        kernels = {}
        for name in names:
            function = c_void_p()
            self._api.call("cuModuleGetFunction", byref(function), module, name.encode())
            kernels[name] = Kernel(_handle(function))
        return kernels

    def close(self) -> None:
        """Unloads modules and lets the context go. Nothing made by this device may be used afterwards."""
        for module in self._modules:
            self._api.call("cuModuleUnload", module)
        self._modules.clear()
        self._api.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def allocate(self, size: int) -> int:
        """See `Device`."""
        address = c_uint64()
        self._api.call("cuMemAlloc_v2", byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        """See `Device`."""
        self._api.call("cuMemFree_v2", address)

    def allocate_pinned(self, size: int) -> int:
        """See `Device`."""
        address = c_void_p()
        self._api.call("cuMemHostAlloc", byref(address), size, cuda_api.HOST_PORTABLE)
        return _handle(address)

    def free_pinned(self, address: int) -> None:
        """See `Device`."""
        self._api.call("cuMemFreeHost", address)

    def create_stream(self) -> Stream:
        """See `Device`."""
        stream = c_void_p()
        self._api.call("cuStreamCreate", byref(stream), cuda_api.STREAM_NON_BLOCKING)
        return Stream(_handle(stream))

    def destroy_stream(self, stream: Stream) -> None:
        """See `Device`."""
        self._api.call("cuStreamDestroy_v2", stream)

    def synchronize_stream(self, stream: Stream) -> None:
        """See `Device`."""
        self._api.call("cuStreamSynchronize", stream)

    def create_event(self) -> Event:
        """See `Device`."""
        event = c_void_p()
        self._api.call("cuEventCreate", byref(event), 0)
        return Event(_handle(event))

    def destroy_event(self, event: Event) -> None:
        """See `Device`."""
        self._api.call("cuEventDestroy_v2", event)

    def record(self, event: Event, stream: Stream) -> None:
        """See `Device`."""
        self._api.call("cuEventRecord", event, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        """See `Device`."""
        self._api.call("cuStreamWaitEvent", stream, event, 0)

    def passed(self, event: Event) -> bool:
        """See `Device`."""
        code = self._api.status("cuEventQuery", event)
        if code == cuda_api.NOT_READY:
            return False
        self._api.check("cuEventQuery", code)
        return True

    def synchronize(self, event: Event) -> None:
        """See `Device`."""
        self._api.call("cuEventSynchronize", event)

    def seconds_between(self, start: Event, end: Event) -> float:
        """See `Device`."""
        milliseconds = c_float()
        self._api.call("cuEventElapsedTime", byref(milliseconds), start, end)
        return milliseconds.value / 1000

    def copy(self, to: int, source: int, size: int, stream: Stream) -> None:
        """See `Device`."""
        self._api.call("cuMemcpyAsync", to, source, size, stream)

    def copy_batch(self, to: AddressArray, source: AddressArray, sizes: AddressArray, stream: Stream) -> None:
        """See `Device`."""
        first = c_size_t(0)  # the one set of attributes holds from copy 0 on
        arguments = (
            to.ctypes.data,
            source.ctypes.data,
            sizes.ctypes.data,
            to.size,
            byref(self._attributes),
            byref(first),
            1,
        )
        if self._api.has("cuMemcpyBatchAsync_v2"):
            self._api.call("cuMemcpyBatchAsync_v2", *arguments, stream)
        else:
            self._api.call("cuMemcpyBatchAsync", *arguments, byref(c_size_t()), stream)

    def launch(
        self, kernel: Kernel, thread_blocks: int, threads: int, arguments: Sequence[KernelArgument], stream: Stream
    ) -> None:
        """See `Device`."""
        pointers = (c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        self._api.call("cuLaunchKernel", kernel, thread_blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None)

    def _attribute(self, number: int) -> int:
        value = c_int()
        self._api.call("cuDeviceGetAttribute", byref(value), number, self._device)
        return value.value


def _handle(pointer: c_void_p) -> int:
    return pointer.value or 0
