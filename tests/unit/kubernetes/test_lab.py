import os
from pathlib import Path

import pytest

from onenode import lab as lab_module
from onenode import mountpoints, namespaces
from onenode.errors import OnenodeError
from onenode.lab import Lab
from onenode.layout import Layout


def test_process_1_of_an_inner_namespace_is_told_from_others() -> None:
    assert namespaces.is_first_in_namespace("Name:\tpause\nNSpid:\t4711\t1\n")
    assert not namespaces.is_first_in_namespace("Name:\tunshare\nNSpid:\t4710\n")
    assert not namespaces.is_first_in_namespace("Name:\tsh\nNSpid:\t4711\t17\n")
    assert not namespaces.is_first_in_namespace("Name:\tinit\nNSpid:\t1\n")
    assert not namespaces.is_first_in_namespace("")


def test_a_command_enters_the_network_only_unless_more_is_asked_for() -> None:
    assert namespaces.nsenter(7) == ["nsenter", "--target=7", "--net", "--"]
    assert namespaces.nsenter(7, names=True, folder=Path("/w")) == [
        *("nsenter", "--target=7", "--net", "--mount", "--wd=/w", "--")
    ]
    assert namespaces.nsenter(7, everything=True) == ["nsenter", "--target=7", "--net", "--mount", "--pid", "--"]


def test_a_folder_that_holds_something_else_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_module, "check_lab", lambda folder: None)
    monkeypatch.setattr(lab_module, "check_privileges", lambda: None)
    monkeypatch.setattr(lab_module, "binaries", lambda: pytest.fail("would start"))
    (tmp_path / "thesis.tex").touch()
    for action in (Lab(tmp_path).up, Lab(tmp_path).down):
        with pytest.raises(OnenodeError, match="something that is not a lab"):
            action()
    assert (tmp_path / "thesis.tex").exists()


def test_an_ordinary_user_is_told_that_it_takes_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OnenodeError, match="needs root"):
        Lab(tmp_path / "lab").down()


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_module, "check_privileges", lambda: None)
    (tmp_path / "lab").touch()
    with pytest.raises(OnenodeError, match="not a lab"):
        Lab(tmp_path / "lab").down()


def test_what_needs_a_running_lab_says_that_there_is_none(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    assert not lab.running
    for action in (lab.enter_network, lambda: lab.kubectl("version"), lambda: lab.start("kubelet")):
        with pytest.raises(OnenodeError, match=f"no lab runs in {tmp_path}/lab"):
            action()


def test_an_unknown_part_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(OnenodeError, match="no part is called kublet; there are containerd, etcd,"):
        Lab(tmp_path).restart("kublet")


def test_clients_keep_their_files_in_the_lab_and_find_its_programs_first(tmp_path: Path) -> None:
    environment = Lab(tmp_path).environment({"PATH": "/bin", "HOME": "/home/a"})
    assert environment["PATH"] == f"{tmp_path}/bin:/bin"
    assert environment["HOME"] == "/home/a"
    kept = ("KUBECONFIG", "KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    assert all(environment[name].startswith(f"{tmp_path}/") for name in kept)


class TestMountPoints:
    @pytest.fixture(autouse=True)
    def machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        borrowed = {str(tmp_path / name): name for name in ("there", "missing", "used")}
        (tmp_path / "there").mkdir()
        monkeypatch.setattr(mountpoints, "BORROWED_FOLDERS", borrowed)
        monkeypatch.setattr(mountpoints, "MACHINE_STATE", tmp_path / "state")
        monkeypatch.setattr(mountpoints, "any_lab_runs", lambda: False)

    def test_only_folders_that_were_made_and_are_still_empty_go_again(self, tmp_path: Path) -> None:
        mountpoints.make()
        (tmp_path / "used" / "file").touch()
        mountpoints.remove_unused()
        left = {name for name in os.listdir(tmp_path) if name != "state"}
        assert left == {"there", "used"}

    def test_nothing_goes_while_a_lab_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mountpoints.make()
        with monkeypatch.context() as patch:
            patch.setattr(mountpoints, "any_lab_runs", lambda: True)
            mountpoints.remove_unused()
        assert (tmp_path / "missing").exists()
        mountpoints.remove_unused()
        assert not (tmp_path / "missing").exists()


def test_the_folder_of_a_lab_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Lab(Path("x")).layout == Layout(tmp_path / "x")
