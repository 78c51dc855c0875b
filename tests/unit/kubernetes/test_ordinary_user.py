"""What an ordinary user is told who asks for what takes root, before anything is begun."""

import os
from pathlib import Path

import pytest

from onenode import buildah, cli
from onenode.errors import OnenodeError


@pytest.fixture(autouse=True)
def ordinary_user(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("KUBE_CONTEXT", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(short_path))


def test_building_an_image_takes_root(tmp_path: Path) -> None:
    with pytest.raises(OnenodeError, match="needs root"):
        buildah.build("image:1", tmp_path / "Dockerfile", tmp_path, tmp_path / "image.tar")
    with pytest.raises(OnenodeError, match="needs root"):
        buildah.base_archive()


@pytest.mark.parametrize("command", [["check"], ["shell"], ["exec", "--", "true"], ["down"]])
def test_a_lab_is_entered_and_ended_by_root(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 1
    assert "needs root" in capfd.readouterr().err


def test_a_cluster_of_ones_own_takes_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_CONTEXT", "mine")
    assert cli.main(["check"]) == 0


def test_a_missing_tool_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "apt-get").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["tools", "g++"]) == 1
    assert "As root, run: apt-get install --no-install-recommends g++" in capfd.readouterr().err
    assert cli.main(["tools", "gcc"]) == 1
    assert "no tool is called gcc" in capfd.readouterr().err


def test_the_memory_of_the_pods_counts_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--memory-gib", "1000000"]) == 1
    assert "needs 1000000 GiB of free memory" in capfd.readouterr().err
