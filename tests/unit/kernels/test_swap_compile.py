"""The same source for GPUs: NVRTC compiles it here, and the result is looked at."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import triton

from autellix_kernels.compiler import Compiled, Nvrtc, choose_target, resources
from autellix_kernels.errors import CompileError
from autellix_kernels.mover import source_folder

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
KERNELS = {"gather_blocks", "scatter_blocks"}


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc.find()


def compile_source(nvrtc: Nvrtc, capability: tuple[int, int]) -> Compiled:
    return nvrtc.compile((source_folder() / "block_move.cu").read_text(), "block_move.cu", capability)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
def test_the_kernels_compile_without_spills_and_within_their_registers(
    nvrtc: Nvrtc, capability: tuple[int, int]
) -> None:
    compiled = compile_source(nvrtc, capability)
    assert compiled.target == f"sm_{capability[0]}{capability[1]}"
    assert compiled.image.startswith(b"\x7fELF")
    report = resources(compiled.log)
    assert {kernel.kernel for kernel in report} == KERNELS
    for kernel in report:
        assert kernel.spill_bytes == 0
        assert kernel.stack_bytes == 0
        assert kernel.registers <= 48  # ten thread blocks of 128 threads still fit beside each other on an SM


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
def test_the_machine_code_holds_four_wide_loads_before_the_first_wide_store(
    nvrtc: Nvrtc, capability: tuple[int, int], tmp_path: Path
) -> None:
    cubin = tmp_path / "block_move.cubin"
    cubin.write_bytes(compile_source(nvrtc, capability).image)
    environment = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}  # cuobjdump calls nvdisasm
    listing = subprocess.run(
        [TOOLS / "cuobjdump", "-sass", cubin], env=environment, check=True, capture_output=True, text=True
    ).stdout
    functions = re.split(r"Function : ", listing)[1:]
    assert {function.split()[0] for function in functions} == KERNELS
    for function in functions:
        # .EF: evict first, as only the moves of data have it; the table of regions is read without.
        wide = re.findall(r"(LDG\.E\.EF\.128|STG\.E\.128)", function)
        assert wide == ["LDG.E.EF.128"] * 4 + ["STG.E.128"] * 4
        assert not re.findall(r"\b(LDL|STL)\b", function)


def test_a_gpu_newer_than_the_compiler_gets_ptx_for_the_driver_to_finish(nvrtc: Nvrtc) -> None:
    compiled = compile_source(nvrtc, (99, 0))
    assert compiled.target == f"compute_{max(nvrtc.architectures)}"
    assert b".visible .entry gather_blocks" in compiled.image
    assert compiled.image.endswith(b"\0")


def test_targets_are_exact_or_the_newest_older_one() -> None:
    assert choose_target((9, 0), [80, 90, 100]) == "sm_90"
    assert choose_target((9, 5), [80, 90, 100]) == "compute_90"
    with pytest.raises(CompileError, match=r"capability 7\.0"):
        choose_target((7, 0), [80, 90])


def test_a_source_that_does_not_compile_gives_the_compilers_words(nvrtc: Nvrtc) -> None:
    with pytest.raises(CompileError, match=r"broken\.cu does not compile for sm_90") as caught:
        nvrtc.compile('extern "C" __global__ void k() { undefined_name = 1; }', "broken.cu", (9, 0))
    assert "undefined_name" in caught.value.log
    assert "broken.cu(1)" in str(caught.value)


def test_no_nvrtc_anywhere_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autellix_kernels.compiler._candidates", lambda: iter(["libnvrtc-nowhere.so"]))
    with pytest.raises(CompileError, match="install one of nvidia-cuda-nvrtc") as caught:
        Nvrtc.find()
    assert "libnvrtc-nowhere.so" in caught.value.log
