"""The space that a run asks for before it begins."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from onenode import prerequisites
from onenode.disk import DiskNeed, still_to_be_made

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def ten_gib_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, 10 << 30))


def fill(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_what_one_disk_has_to_hold_is_added_up_and_what_to_do_is_told(tmp_path: Path) -> None:
    needs = [DiskNeed(tmp_path / "not" / "there" / "yet", 4), DiskNeed(tmp_path / "b", 6)]
    assert prerequisites.disk_problems(needs) == []
    (problem,) = prerequisites.disk_problems([*needs, DiskNeed(tmp_path, 1)])
    assert problem.startswith(f"it needs 11 GiB of free disk for {tmp_path}, {tmp_path}/b, {tmp_path}/not/there/yet; ")
    assert "there are 10.0: free some, or name a folder on a larger disk: XDG_CACHE_HOME=" in problem


def test_disks_are_judged_apart(tmp_path: Path) -> None:
    assert Path("/proc").stat().st_dev != tmp_path.stat().st_dev
    assert prerequisites.disk_problems([DiskNeed(tmp_path, 9), DiskNeed(Path("/proc"), 9)]) == []
    assert len(prerequisites.disk_problems([DiskNeed(tmp_path, 11), DiskNeed(Path("/proc"), 11)])) == 2


def test_a_first_run_has_all_to_make_and_a_later_one_nothing(tmp_path: Path) -> None:
    caches, checkout = tmp_path / "caches", tmp_path / "checkout"
    environment = {"XDG_CACHE_HOME": str(caches)}
    needs = still_to_be_made(environment, checkout)
    assert {need.folder for need in needs} == {caches / "go-build", caches / "uv", caches / "autellix" / "images"}
    # With what a lab itself takes this is the figure of README.md and docs/development.md.
    assert sum(need.gib for need in needs) + prerequisites.LAB_DISK_GIB == 17

    fill(caches / "autellix" / "programs" / "kube-1" / "kube", caches / "autellix" / "images" / "base-1" / "base.tar")
    assert {need.folder for need in still_to_be_made(environment, checkout)} == {caches / "uv"}
    fill(caches / "uv" / "archive-v0" / "x" / "vllm")
    assert still_to_be_made(environment, checkout) == []


def test_caches_in_folders_of_their_own_are_found(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "GOCACHE": "/proc/go", "UV_CACHE_DIR": "/proc/uv"}
    found = {need.folder for need in still_to_be_made(environment, tmp_path / "checkout")}
    # From another disk packages are copied into the environment, not linked.
    assert found >= {Path("/proc/go"), Path("/proc/uv"), tmp_path / "checkout" / ".venv"}
    fill(tmp_path / "checkout" / ".venv" / ".synced")
    found = {need.folder for need in still_to_be_made(environment, tmp_path / "checkout")}
    assert found == {Path("/proc/go"), tmp_path / "autellix" / "images"}
