"""What can be seen of a lab from outside, and the pods that its tests run."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onenode import namespaces
from onenode.cache import locked
from onenode.lab import Lab
from onenode.layout import BORROWED_FOLDERS, default_lab_folder

USER = 65532
# They count, or give another value each time they are read, or the kernel lowers them by itself.
_CHANGING = (
    *("kernel/random/", "kernel/ns_last_pid", "kernel/pty/nr", "kernel/tainted"),
    *("kernel/hung_task_detect_count", "kernel/hung_task_warnings", "kernel/perf_event_max_sample_rate"),
    *("fs/aio-nr", "fs/dentry-state", "fs/file-nr", "fs/inode-", "fs/quota/"),
    "net/netfilter/nf_conntrack_count",
)


@contextlib.contextmanager
def named_lab(name: str, images: Sequence[Path]) -> Iterator[Lab]:
    """The lab called ``name``, started anew, and nothing left of it afterwards.

    Its folder is always the same, so a run that was killed costs nothing but the memory of its lab until the next run,
    which ends it. Raises OnenodeError while another run has the lab.
    """
    folder = default_lab_folder(name)
    refusal = f"another run is using the lab in {folder}; wait for its end, or stop it"
    with locked(folder.with_name(f"{name}.lock"), f"the lab {name}", refusal=refusal):
        lab = Lab(folder)
        try:
            lab.up(images)
            yield lab
        finally:
            lab.down()


def kernel_settings() -> dict[str, str]:
    """Every setting below /proc/sys that stays the same unless someone changes it."""
    root = Path("/proc/sys")
    found = {}
    for file in root.rglob("*"):
        name = str(file.relative_to(root))
        if file.is_file() and not name.startswith(_CHANGING):
            text = _read(file)
            if text is not None:
                found[name] = text
    return found


def traces(lab: Lab) -> list[str]:
    """Whatever of a lab is left on the machine: processes, mounts, control groups, files, mount points."""
    root = str(lab.layout.root)
    others = [p for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != os.getpid()]
    return [
        *(str(p) for p in others if root in (_read(p / "cmdline") or "") + (_read(p / "mounts") or "")),
        *(str(group) for group in Path("/sys/fs/cgroup").glob(f"*/{lab.layout.cgroup}")),
        *([root] if lab.layout.root.exists() else []),
        *(folder for folder in BORROWED_FOLDERS if Path(folder).exists() and not namespaces.any_lab_runs()),
    ]


def restricted_pod(
    name: str,
    image: str,
    arguments: Sequence[str],
    *,
    command: Sequence[str] | None = None,
    container: dict[str, Any] | None = None,
    volumes: Sequence[dict[str, Any]] = (),
    restart: str = "Always",
) -> dict[str, Any]:
    """A pod that the strictest pod security admits, labelled ``app=name``; ``container`` adds to its one container."""
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    main = {"name": "main", "image": image, "args": list(arguments), "securityContext": security, **(container or {})}
    if command is not None:
        main["command"] = list(command)
    spec = {
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 2,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [main],
        "volumes": list(volumes),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def _read(file: Path) -> str | None:
    """The text of a file of /proc, or None if it cannot be read, as when its process has just ended."""
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return None
