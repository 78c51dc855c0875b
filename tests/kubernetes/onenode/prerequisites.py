"""What a machine must have before anything is started, and what to do where it does not."""

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from onenode import cgroups, debian
from onenode.disk import DiskNeed
from onenode.errors import OnenodeError

GIB = 1 << 30
LAB_MEMORY_GIB = 2.0  # the cluster itself, and a few small pods
LAB_DISK_GIB = 4.0  # images and what pods write
BUILD_DISK_GIB = 8.0  # Go's caches, once
_CAP_SYS_ADMIN = 21


def check_lab(
    folder: Path,
    *,
    memory_gib: float = LAB_MEMORY_GIB,
    needs: Sequence[DiskNeed] = (),
    tools: Sequence[str] = debian.LAB_TOOLS,
) -> None:
    """Makes sure that a lab can run with its files in ``folder``; installs Debian packages that ``tools`` miss.

    ``needs`` are what else will be written to disks besides the lab's own files.
    Raises OnenodeError with every shortcoming and what to do about it.
    """
    problems = [
        *platform_problems(platform.system(), platform.machine()),
        *privilege_problems(os.geteuid(), Path("/proc/self/status")),
        *cgroup_problems(Path("/proc/mounts")),
        *file_system_problems(Path("/proc/filesystems")),
        *memory_problems(Path("/proc/meminfo"), memory_gib),
        *disk_problems([DiskNeed(folder, LAB_DISK_GIB), *needs]),
    ]
    if problems:
        raise OnenodeError(
            "this machine cannot run the throw-away Kubernetes:\n" + "\n".join(f"- {p}" for p in problems)
        )
    debian.provide(tools)


def check_privileges() -> None:
    """Makes sure that this process may enter or end a lab, or build an image. Raises OnenodeError otherwise."""
    problems = privilege_problems(os.geteuid(), Path("/proc/self/status"))
    if problems:
        raise OnenodeError(problems[0])


def check_build(folder: Path) -> None:
    """Makes sure that programs and images can be built, with caches on the disk of ``folder``."""
    problems = disk_problems([DiskNeed(folder, BUILD_DISK_GIB)])
    if problems:
        raise OnenodeError(problems[0])


def platform_problems(system: str, machine: str) -> list[str]:
    """Linux on x86-64 is what the images and the locked packages are for."""
    if (system, machine) == ("Linux", "x86_64"):
        return []
    return [f"it needs Linux on x86_64, this is {system} on {machine}; use a machine of that kind, virtual or not"]


def privilege_problems(effective_user: int, status: Path) -> list[str]:
    """Namespaces, mounts and control groups take root, and root with its usual powers."""
    if effective_user != 0:
        return ["it needs root; run it with sudo, or use KUBE_CONTEXT with a cluster of your own"]
    line = next((line for line in _lines(status) if line.startswith("CapEff:")), "")
    if line and not int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1:
        return ["root lacks the capability CAP_SYS_ADMIN here, as in an unprivileged container"]
    return []


def cgroup_problems(mounts: Path) -> list[str]:
    """The lab is made for control groups of version 1."""
    missing = cgroups.missing_controllers(mounts.read_text() if mounts.exists() else "")
    if not missing:
        return []
    return [
        f"it needs control groups of version 1 with {', '.join(missing)}; this machine has version 2 or lacks them "
        "(the kernel option systemd.unified_cgroup_hierarchy=0 brings version 1 back), "
        "or use KUBE_CONTEXT with a cluster of your own"
    ]


def file_system_problems(filesystems: Path) -> list[str]:
    """Containers are stacked by overlayfs."""
    if any(line.split()[-1:] == ["overlay"] for line in _lines(filesystems)):
        return []
    return ["the kernel has no overlayfs; try: modprobe overlay"]


def memory_problems(meminfo: Path, needed_gib: float) -> list[str]:
    """Memory that is free or can be freed at once."""
    line = next((line for line in _lines(meminfo) if line.startswith("MemAvailable:")), "")
    available = int(line.split()[1]) * 1024 / GIB if line else 0.0
    if available >= needed_gib:
        return []
    return [f"it needs {needed_gib:.0f} GiB of free memory, there are {available:.1f}; end something else first"]


def disk_problems(needs: Sequence[DiskNeed]) -> list[str]:
    """Free space for all that is needed, disk by disk."""
    disks: dict[int, list[DiskNeed]] = {}
    for need in needs:
        disks.setdefault(need.disk, []).append(need)
    problems = []
    for here in disks.values():
        needed, free = sum(need.gib for need in here), shutil.disk_usage(here[0].existing).free / GIB
        if free < needed:
            folders = ", ".join(sorted({str(need.folder) for need in here}))
            problems.append(
                f"it needs {needed:.0f} GiB of free disk for {folders}; there are {free:.1f}: "
                "free some, or name a folder on a larger disk: XDG_CACHE_HOME=/folder make ..."
            )
    return problems


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
