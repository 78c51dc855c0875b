import os
from pathlib import Path

import pytest

from onenode import cgroups, debian, prerequisites
from onenode.errors import OnenodeError

V1 = "\n".join(
    f"cgroup /sys/fs/cgroup/{name} cgroup rw,relatime,{name} 0 0"
    for name in ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
)
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0"


def file(folder: Path, text: str) -> Path:
    path = folder / "file"
    path.write_text(text)
    return path


def test_version_1_of_control_groups_is_accepted_also_when_controllers_share_a_hierarchy(tmp_path: Path) -> None:
    joined = V1.replace("cgroup/cpu cgroup rw,relatime,cpu ", "cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct ")
    without = "\n".join(line for line in joined.splitlines() if "/cpuacct " not in line)
    assert prerequisites.cgroup_problems(file(tmp_path, V1)) == []
    assert prerequisites.cgroup_problems(file(tmp_path, without)) == []


def test_version_2_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (problem,) = prerequisites.cgroup_problems(file(tmp_path, V2))
    assert "version 1" in problem
    assert "KUBE_CONTEXT" in problem


def test_a_missing_controller_is_named() -> None:
    assert cgroups.missing_controllers(V1.replace("pids", "other")) == ["pids"]


def test_another_system_and_an_ordinary_user_are_refused(tmp_path: Path) -> None:
    assert prerequisites.platform_problems("Linux", "x86_64") == []
    assert "Darwin on arm64" in prerequisites.platform_problems("Darwin", "arm64")[0]
    assert "needs root" in prerequisites.privilege_problems(1000, tmp_path / "none")[0]


def test_root_without_its_powers_is_refused(tmp_path: Path) -> None:
    assert prerequisites.privilege_problems(0, file(tmp_path, "CapEff:\t000001ffffffffff\n")) == []
    assert "CAP_SYS_ADMIN" in prerequisites.privilege_problems(0, file(tmp_path, "CapEff:\t00000000a80425fb\n"))[0]


def test_too_little_memory_is_told_with_both_numbers(tmp_path: Path) -> None:
    meminfo = file(tmp_path, "MemTotal: 9 kB\nMemAvailable: 1572864 kB\n")
    assert prerequisites.memory_problems(meminfo, 1.5) == []
    assert "needs 2 GiB of free memory, there are 1.5" in prerequisites.memory_problems(meminfo, 2)[0]


def test_a_kernel_without_overlayfs_is_refused(tmp_path: Path) -> None:
    assert prerequisites.file_system_problems(file(tmp_path, "nodev\toverlay\n\text4\n")) == []
    assert "modprobe overlay" in prerequisites.file_system_problems(file(tmp_path, "\text4\n"))[0]


def test_missing_tools_are_named_by_package_once_and_not_installed_when_that_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("apt-get", "ip"):
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(debian, "_SYSTEM_FOLDERS", "")
    assert debian.missing_packages(["containerd", "ctr", "runc", "ip"]) == ["containerd", "runc"]
    with pytest.raises(OnenodeError, match="apt-get install --no-install-recommends containerd runc"):
        debian.provide(["containerd", "ctr", "runc", "ip"], {"AUTELLIX_NO_INSTALL": "1"})


def test_nothing_is_done_when_all_tools_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(debian, "_install", lambda packages: pytest.fail(f"would install {packages}"))
    debian.provide(["ip"], os.environ)


def test_services_are_kept_from_starting_and_the_machines_own_policy_is_put_back(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with debian.services_kept_from_starting(policy):
        assert "exit 101" in policy.read_text()
        assert os.access(policy, os.X_OK)
    assert not policy.exists()
    policy.write_text("the machine's own")
    with pytest.raises(RuntimeError, match="broken"), debian.services_kept_from_starting(policy):
        raise RuntimeError("broken")
    assert policy.read_text() == "the machine's own"


def test_the_machines_own_policy_survives_a_run_that_was_killed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with debian.services_kept_from_starting(policy):
        ours = policy.read_text()
    policy.write_text(ours)
    policy.with_name("policy-rc.d.autellix-kept").write_text("the machine's own")
    with debian.services_kept_from_starting(policy):
        pass
    assert policy.read_text() == "the machine's own"
