"""The driver layer against a driver made for it, which is compiled against the real cuda.h."""

import ctypes
import importlib.metadata
import json
import logging
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import swapbench.__main__
from autellix_kernels.compiler import Nvrtc
from autellix_kernels.cuda_api import CudaApi
from autellix_kernels.cuda_device import CudaDevice
from autellix_kernels.device import Stream
from autellix_kernels.engine import SwapEngine
from autellix_kernels.errors import CompileError, DriverError, PinnedMemoryError
from autellix_kernels.layout import BlockLayout, Region
from autellix_kernels.mover import KernelMover, source_folder
from autellix_kernels.plan import Path as TransferPath
from autellix_kernels.pool import HostPool, MemoryFacts, PinnedMemory
from autellix_kernels.settings import SwapSettings
from autellix_kernels.start import compile_kernels, open_mover
from swapbench.cases import DRY
from swapbench.decode import NumpyDecode

FRAGMENT, BLOCKS, TENSORS = 4096, 32, 3
PLENTY = MemoryFacts(available=1 << 62, container=None, locked=None)


def cuda_headers() -> Path:
    files = importlib.metadata.files("nvidia-cuda-runtime") or []
    return next(Path(str(file.locate())).parent for file in files if file.name == "cuda.h")


@pytest.fixture(scope="session", params=[13, 12, 0], ids=["cuda13", "cuda12.8", "no-batch"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("driver") / f"libcuda-{request.param}.so"
    command = ["g++", "-O1", "-std=c++17", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"]
    command += [f"-DBATCH_OF_CUDA={request.param}", f"-I{cuda_headers()}", f"-I{source_folder()}"]
    if request.param == 0:
        command.append("-Wno-unused-function")
    subprocess.run([*command, Path(__file__).parent / "fake_cuda.cpp", "-o", library], check=True)
    return library


@pytest.fixture
def device(driver: Path) -> Iterator[CudaDevice]:
    """A device; afterwards nothing that was made may be left."""
    library = ctypes.CDLL(str(driver))
    batches(driver).value = 0
    live = library.fake_live()
    device = CudaDevice(0, CudaApi(str(driver)))
    yield device
    device.close()
    assert library.fake_live() == live


def batches(driver: Path) -> ctypes.c_int:
    return ctypes.c_int.in_dll(ctypes.CDLL(str(driver)), "fake_batches")


def inject(driver: Path, error: int) -> None:
    ctypes.c_int.in_dll(ctypes.CDLL(str(driver)), "fake_next_error").value = error


def view(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def test_the_device_says_what_it_is(device: CudaDevice, driver: Path) -> None:
    assert device.info.name == "Fake GPU"
    assert device.info.capability == (9, 0)
    assert device.info.multiprocessors == 132
    assert device.info.batched_copy == ("-0" not in driver.name)


@pytest.mark.parametrize("gather_from", [0, 10**6], ids=["gather", "batch"])
def test_store_and_load_through_the_driver_keep_every_byte(device: CudaDevice, driver: Path, gather_from: int) -> None:
    size = BLOCKS * FRAGMENT
    caches = [device.allocate(size) for _ in range(TENSORS)]
    rng = np.random.default_rng(7)
    for cache in caches:
        view(cache, size)[:] = rng.integers(1, 256, size)
    before = [view(cache, size).reshape(BLOCKS, FRAGMENT).copy() for cache in caches]
    layout = BlockLayout(tuple(Region(cache, BLOCKS, FRAGMENT, FRAGMENT) for cache in caches))
    pinned = PinnedMemory(device, BLOCKS * layout.block_bytes, setting="pool", facts=PLENTY)
    swap_settings = SwapSettings(gather_from_fragments=gather_from, staging_bytes=2 * layout.block_bytes)
    mover = KernelMover(device, layout, compile_kernels(device), thread_blocks=5)
    engine = SwapEngine(device, layout, HostPool(pinned.slabs, layout.block_bytes), mover, swap_settings)
    model = device.create_stream()

    blocks = rng.permutation(BLOCKS)[:20]
    stored = engine.store(blocks, range(20), after=model)
    for cache in caches:
        view(cache, size)[:] = 0
    engine.load(range(20), blocks, after=model)
    engine.wait([1, 2])
    assert [done.transfer.number for done in engine.finished()] == [1, 2]
    for cache, old in zip(caches, before, strict=True):
        np.testing.assert_array_equal(view(cache, size).reshape(BLOCKS, FRAGMENT)[blocks], old[blocks])

    batched = bool(gather_from) and device.info.batched_copy
    assert stored.path is (TransferPath.BATCH if batched else TransferPath.GATHER)
    assert batches(driver).value == (2 if batched else 0)
    engine.close()
    mover.close()
    pinned.close()
    device.destroy_stream(model)
    for cache in caches:
        device.free(cache)


def test_an_error_of_the_driver_names_the_call_and_its_text(device: CudaDevice, driver: Path) -> None:
    event, stream = device.create_event(), device.create_stream()
    inject(driver, 700)
    with pytest.raises(DriverError, match=r"cuEventQuery returned 700 \(an illegal memory access was encountered\)"):
        device.passed(event)
    inject(driver, 600)
    assert not device.passed(event)
    inject(driver, 42)
    with pytest.raises(DriverError, match=r"cuMemcpyAsync returned 42 \(an error the driver has no text for\)"):
        device.copy(device_buffer := device.allocate(16), device_buffer, 0, stream)
    device.free(device_buffer)
    device.destroy_stream(stream)
    device.destroy_event(event)


def test_time_between_events_is_in_seconds(device: CudaDevice) -> None:
    start, end, stream = device.create_event(), device.create_event(), device.create_stream()
    device.record(start, stream)
    device.record(end, stream)
    assert 0 <= device.seconds_between(start, end) < 10
    assert device.seconds_between(end, start) == -device.seconds_between(start, end)
    device.destroy_stream(stream)
    device.destroy_event(start)
    device.destroy_event(end)


def test_the_default_stream_can_be_ordered_after(device: CudaDevice) -> None:
    event, default = device.create_event(), Stream(0)
    device.record(event, default)
    device.wait(default, event)
    device.destroy_event(event)


def test_a_gpu_that_is_not_there_is_an_error(driver: Path) -> None:
    with pytest.raises(DriverError, match="cuDeviceGet returned 101"):
        CudaDevice(1, CudaApi(str(driver)))


def test_pinned_memory_that_the_driver_refuses_names_the_setting(device: CudaDevice) -> None:
    with pytest.raises(PinnedMemoryError, match=r"engine\.swap asks for .* cuMemHostAlloc returned 2"):
        PinnedMemory(device, 1 << 41, setting="engine.swap", facts=PLENTY, slab_bytes=1 << 41)


def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(DriverError, match="no usable CUDA driver: libcuda-nowhere"):
        CudaApi("libcuda-nowhere.so")


def test_kernels_that_do_not_compile_give_one_warning_with_the_log_and_the_torch_mover(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise CompileError("block_move.cu does not compile for sm_90", "line 7: a reason")

    monkeypatch.setattr(Nvrtc, "compile", refuse)
    monkeypatch.setattr("autellix_kernels.torch_mover.cuda_bytes", host_bytes)
    cache = device.allocate(FRAGMENT * BLOCKS)
    layout = BlockLayout((Region(cache, BLOCKS, FRAGMENT, FRAGMENT),))
    with caplog.at_level(logging.WARNING):
        mover = open_mover(device, layout, SwapSettings())
    assert mover.name == "torch"
    assert len(caplog.records) == 1
    assert "line 7: a reason" in caplog.text
    mover.close()
    device.free(cache)


def test_a_cubin_that_the_driver_refuses_falls_back_too(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise DriverError("cuModuleLoadData", 209, "no kernel image")

    monkeypatch.setattr(CudaDevice, "load", refuse)
    monkeypatch.setattr("autellix_kernels.torch_mover.cuda_bytes", host_bytes)
    cache = device.allocate(FRAGMENT * BLOCKS)
    layout = BlockLayout((Region(cache, BLOCKS, FRAGMENT, FRAGMENT),))
    with caplog.at_level(logging.WARNING):
        assert open_mover(device, layout, SwapSettings()).name == "torch"
    assert "cuModuleLoadData returned 209" in caplog.text
    device.free(cache)


def test_the_benchmark_runs_through_the_driver(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live = ctypes.CDLL(str(driver)).fake_live()
    monkeypatch.setattr("autellix_kernels.cuda_api.DRIVER", str(driver))
    monkeypatch.setattr(swapbench.__main__, "TorchDecode", lambda _: NumpyDecode())
    monkeypatch.setattr(
        swapbench.__main__, "FULL", replace(DRY, fragments=(4096,), totals=(1 << 16,), verified_total=1 << 16)
    )
    assert swapbench.__main__.main(["--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "swap.json").read_text())
    assert document["device"] == "Fake GPU"
    assert not document["dry_run"]
    assert document["versions"]["nvrtc"]
    assert document["measurements"]
    assert ctypes.CDLL(str(driver)).fake_live() == live


def host_bytes(address: int, size: int, ordinal: int) -> object:
    import torch

    return torch.from_numpy(view(address, size))
