"""The benchmark's logic: the prepared script has to work at the first try on a machine that is there for minutes."""

import json
import os
import threading
import xml.etree.ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import swapbench.__main__
from autellix_kernels.device import Stream
from autellix_kernels.errors import DriverError
from autellix_kernels.host import build
from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import IdArray
from autellix_kernels.mover import KernelMover
from autellix_kernels.settings import SwapSettings
from swapbench.cases import DRY, FULL, KIB, MIB, Method, Traffic, cases, geometry, size_text
from swapbench.decode import NumpyDecode
from swapbench.figure import draw
from swapbench.goals import goals, suggestions
from swapbench.keeper import STOPPED, Keeper
from swapbench.measure import DecodeResult, Measurement, SweepPoint, beside_decode
from swapbench.report import Results
from swapbench.rig import Rig
from swapbench.run import GaveUp, Reporting, run
from swapbench.verify import WrongBytes, verify

TINY = replace(DRY, fragments=(4 * KIB,), totals=(64 * KIB,), verified_total=64 * KIB, sweep_thread_blocks=(1,))


@pytest.fixture
def rig(host_library: Path) -> Iterator[Rig]:
    device = HostDevice()
    rig = Rig(device, build.load(device, host_library), DRY, seed=3)
    yield rig
    rig.close()
    assert device.live_objects == 0


def quiet(clock: Callable[[], float] = lambda: 0.0) -> Reporting:
    return Reporting(clock, lambda _: None, lambda: None)


def measurement(method: Method, rate: float, fragment: int = 8 * KIB, total: int = 64 * MIB) -> Measurement:
    return Measurement(fragment, total, Traffic.STORE, method, total, 3, total / rate / 1e9, total / rate / 1e9)


def test_a_dry_run_writes_one_json_file_a_figure_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swapbench.__main__.main(["--dry-run", "--out", str(tmp_path / "out")]) == 0
    document = json.loads((tmp_path / "out/swap.json").read_text())
    assert document["dry_run"]
    assert document["verified_bytes"] > 10 * MIB
    assert len(document["measurements"]) == len(cases(DRY))
    assert {row["method"] for row in document["measurements"]} == {method.value for method in Method}
    assert [result["method"] for result in document["decode"]] == ["ours", "batch", "large"]
    assert len(document["sweep"]) == 4
    assert document["skipped"] == []
    assert document["errors"] == []
    assert document["complete"]
    assert len(document["goals"]) == 4
    assert xml.etree.ElementTree.parse(tmp_path / "out/swap.svg").getroot().tag.endswith("svg")
    printed = capsys.readouterr().out
    assert "the times mean nothing" in printed
    assert "goal: share of one large pinned copy" in printed
    assert "512 KiB in 4 KiB, GB/s: store" in printed, "tells how far it is"


def test_without_a_driver_the_script_says_so_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("autellix_kernels.cuda_api.DRIVER", "libcuda-nowhere.so")
    assert swapbench.__main__.main(["--out", str(tmp_path)]) == 1
    assert "no usable CUDA driver" in capsys.readouterr().err


def lose_last_block(original: Callable[..., None]) -> Callable[..., None]:
    def move(self: KernelMover, blocks: IdArray, staging: int, stream: Stream) -> None:
        original(self, blocks[:-1], staging, stream)

    return move


def swap_two_blocks(original: Callable[..., None]) -> Callable[..., None]:
    def move(self: KernelMover, blocks: IdArray, staging: int, stream: Stream) -> None:
        original(self, np.ascontiguousarray(np.roll(blocks, 1)), staging, stream)

    return move


@pytest.mark.parametrize("fault", [lose_last_block, swap_two_blocks])
@pytest.mark.parametrize(("name", "traffic"), [("gather", Traffic.STORE), ("scatter", Traffic.LOAD)])
def test_verification_finds_wrong_bytes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Callable[..., None]], name: str, traffic: Traffic
) -> None:
    assert verify(rig, DRY, Method.GATHER, 4 * KIB, traffic) == 5 * DRY.verified_total
    monkeypatch.setattr(KernelMover, name, fault(getattr(KernelMover, name)))
    with pytest.raises(WrongBytes, match=rf"gather, {traffic}, fragments of 4096 bytes: .* bytes differ"):
        verify(rig, DRY, Method.GATHER, 4 * KIB, traffic)


def test_nothing_is_measured_after_wrong_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelMover, "gather", lose_last_block(KernelMover.gather))
    results = Results("host", True, {}, {})
    with pytest.raises(WrongBytes):
        run(rig, NumpyDecode, DRY, results, quiet())
    assert results.measurements == []
    assert results.decode == []


def test_cells_that_the_time_is_not_enough_for_are_named(rig: Rig) -> None:
    results = Results("host", True, {}, {})
    ticks = iter(range(10**6))
    plan = replace(TINY, budget_seconds=12)
    run(rig, NumpyDecode, plan, results, quiet(lambda: float(next(ticks))))
    assert len(results.measurements) + len(results.skipped) == len(cases(plan))
    assert results.measurements
    assert results.skipped


def test_a_part_that_breaks_is_written_down_and_the_rest_is_measured(rig: Rig) -> None:
    def broken() -> NumpyDecode:
        raise RuntimeError("no memory for weights")

    results = Results("host", True, {}, {})
    saved: list[int] = []
    told: list[str] = []
    run(
        rig, broken, TINY, results, Reporting(lambda: 0.0, told.append, lambda: saved.append(len(results.measurements)))
    )
    assert results.errors == ["decode: RuntimeError: no memory for weights"]
    assert any("no memory for weights" in line for line in told)
    assert results.complete
    assert len(results.measurements) == len(cases(TINY))
    assert saved[0] == 0
    assert saved == sorted(saved), "what there is is saved as it grows"


def test_a_gpu_on_which_everything_breaks_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DriverError("cuLaunchKernel", 719, "unspecified launch failure")

    monkeypatch.setattr("swapbench.run.measure", refuse)
    results = Results("host", True, {}, {})
    with pytest.raises(GaveUp, match=r"3 parts broke, the last: .*unspecified launch failure"):
        run(rig, NumpyDecode, TINY, results, quiet())
    assert not results.complete
    assert results.decode != []


def test_a_run_that_is_stuck_is_ended_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    statuses: list[int] = []

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    monkeypatch.setattr(os, "_exit", end)
    results = Results("host", True, {}, {}, measurements=[measurement(Method.OURS, 10)])
    with Keeper(results, tmp_path, limit_seconds=0.01):
        assert ended.wait(60)
    assert statuses == [STOPPED]
    document = json.loads((tmp_path / "swap.json").read_text())
    assert len(document["measurements"]) == 1
    assert document["errors"] == ["stopped after 0.01 s: something did not end"]
    assert not document["complete"]


def test_a_driver_without_batched_copy_leaves_that_method_out(host_library: Path) -> None:
    device = HostDevice(batched_copy=False)
    rig = Rig(device, build.load(device, host_library), TINY, seed=3)
    results = Results("host", True, {}, {})
    run(rig, NumpyDecode, TINY, results, quiet())
    assert all(m.method is not Method.BATCH for m in results.measurements)
    assert [result.method for result in results.decode] == [Method.OURS, Method.LARGE]


def test_the_full_plan_covers_what_is_asked_for_and_begins_with_what_matters_most() -> None:
    assert {min(FULL.fragments), max(FULL.fragments)} == {4 * KIB, 2 * MIB}
    assert {min(FULL.totals), max(FULL.totals)} == {MIB, 1024 * MIB}
    cells = cases(FULL)
    assert cells[0].geometry.total_bytes == 64 * MIB
    for cell in cells:
        shape = cell.geometry
        assert shape.fragment_bytes * shape.tensors * shape.blocks == shape.total_bytes
    assert geometry(2 * MIB, MIB) is None


def test_steps_count_as_beside_transfers_only_while_one_is_on_the_way(rig: Rig) -> None:
    class Counting:
        """Three steps alone of a second each, three beside of two, three alone again."""

        def __init__(self) -> None:
            self.steps = 0

        def step(self) -> None:
            self.steps += 1

        def seconds(self) -> list[float]:
            return [2.0 if self.steps == 6 else 1.0] * 3

    shape = geometry(4 * KIB, 256 * KIB)
    assert shape is not None
    result = beside_decode(rig, Counting(), Method.OURS, shape, 3, SwapSettings())
    assert result.overlapped_steps == 0  # on the stand-in everything ends at once
    assert result.slowdown == 0
    assert DecodeResult(Method.OURS, 1.0, 1.04, 10).slowdown == pytest.approx(0.04)


def test_goals_take_the_worst_cell_and_say_which() -> None:
    rows = [
        measurement(Method.LARGE, 50),
        measurement(Method.BATCH, 40),
        measurement(Method.OURS, 49),
        measurement(Method.LARGE, 50, total=1024 * MIB),
        measurement(Method.OURS, 46, total=1024 * MIB),
    ]
    big, medium, batch, decode = goals(
        rows, [DecodeResult(Method.OURS, 1, 1.04, 9), DecodeResult(Method.BATCH, 1, 2, 9)]
    )
    assert big.value == pytest.approx(0.92)
    assert big.met is False
    assert big.worst == "store, 1 GiB in fragments of 8 KiB"
    assert medium.value is None
    assert medium.met is None
    assert batch.value == pytest.approx(49 / 40)
    assert batch.met
    assert decode.value == pytest.approx(0.04)
    assert decode.met


def test_suggestions_are_where_the_winner_changes_for_good() -> None:
    rows = [
        *(measurement(Method.GATHER, 40, fragment=size * KIB) for size in (4, 16, 64, 256)),
        measurement(Method.BATCH, 10, fragment=4 * KIB),
        measurement(Method.BATCH, 39, fragment=16 * KIB),
        measurement(Method.BATCH, 41, fragment=64 * KIB),
        measurement(Method.BATCH, 45, fragment=256 * KIB),
        measurement(Method.GATHER, 5, fragment=4 * KIB, total=MIB),
        measurement(Method.BATCH, 9, fragment=4 * KIB, total=MIB),
    ]
    points = [SweepPoint(MIB, few, size, seconds) for few, size, seconds in ((16, 1, 2.0), (32, 1, 1.02), (64, 1, 1.0))]
    found = {suggestion.setting: suggestion.value for suggestion in suggestions(rows, points)}
    assert found == {
        "gather_below_bytes": 64 * KIB,
        "gather_from_fragments": 4096,
        "thread_blocks": 32,
        "staging_bytes": 1,
    }


def test_the_figure_has_a_panel_for_each_size_and_direction() -> None:
    rows = [measurement(method, 10, total=total) for method in Method for total in (MIB, 64 * MIB)]
    root = xml.etree.ElementTree.fromstring(draw(rows, "A & B"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A & B" in texts
    assert {"store, 1 MiB", "store, 64 MiB"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2 * len(Method)


@pytest.mark.parametrize(
    ("size", "text"), [(512, "512 B"), (8 * KIB, "8 KiB"), (64 * MIB, "64 MiB"), (1024 * MIB, "1 GiB")]
)
def test_sizes_are_told_in_their_unit(size: int, text: str) -> None:
    assert size_text(size) == text
