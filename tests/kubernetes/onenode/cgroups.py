"""The lab's control groups: one folder in each version-1 hierarchy, below which the kubelet puts the pods."""

import os
from collections.abc import Collection
from pathlib import Path

from onenode.layout import Layout
from onenode.waiting import wait_until

# What the kubelet and runc manage. The kubelet refuses to start when its root is missing in one of them.
_NEEDED = {"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids"}


def hierarchies(mounts: str, kinds: Collection[str] = ("cgroup",)) -> dict[str, set[str]]:
    """The mount points of hierarchies in the text of /proc/mounts, and the options of each."""
    rows = [line.split() for line in mounts.splitlines()]
    return {row[1]: set(row[3].split(",")) for row in rows if row[2] in kinds}


def missing_controllers(mounts: str) -> list[str]:
    """Which controllers a lab needs and this machine does not offer as version 1."""
    return sorted(_NEEDED.difference(*hierarchies(mounts).values()))


def create(layout: Layout) -> None:
    """Makes the lab's group in every hierarchy."""
    for folder in _folders(layout):
        folder.mkdir(exist_ok=True)
        for name in (
            "cpuset.cpus",
            "cpuset.mems",
        ):  # empty in a new group, and nothing may run in it until they are set
            inherited = folder.parent / name
            if inherited.exists():
                (folder / name).write_text(inherited.read_text())


def remove(layout: Layout) -> None:
    """Removes the lab's groups. A group empties a moment after its last process has ended."""
    wait_until(lambda: _removed(layout), f"removal of the control groups {layout.cgroup}", seconds=20)


def existing(layout: Layout) -> list[Path]:
    """The lab's groups that are there; runc makes one in the version-2 hierarchy too, where a machine has both."""
    return [folder for folder in _folders(layout, ("cgroup", "cgroup2")) if folder.exists()]


def _folders(layout: Layout, kinds: Collection[str] = ("cgroup",)) -> list[Path]:
    return [Path(point) / layout.cgroup for point in hierarchies(Path("/proc/mounts").read_text(), kinds)]


def _removed(layout: Layout) -> bool:
    for top in existing(layout):
        for folder, _, _ in os.walk(top, topdown=False):
            os.rmdir(folder)
    return True
