"""Debian packages: which hold the tools we need, and installing them without starting their services."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from onenode.cache import cache_folder, locked
from onenode.errors import OnenodeError
from onenode.mountpoints import MACHINE_STATE
from onenode.progress import run

# By tool: a command, or the path of a file.
PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "g++": "g++",
    "curl": "curl",
}
LAB_TOOLS = ("containerd", "ctr", "runc", "/usr/lib/cni/ptp", "iptables", "ip", "nsenter", "mount", "openssl")
IMAGE_TOOLS = ("buildah", "mmdebstrap")

POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_MARK = "# Written by autellix: keeps services from starting while packages are installed."
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"  # often not on the PATH of a person


def missing_packages(tools: Iterable[str]) -> list[str]:
    """The packages to install so that every one of the tools is there."""
    return sorted({PACKAGES[tool] for tool in tools if not _is_there(tool)})


def provide(tools: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Installs what is missing. Raises OnenodeError, naming it, where that is not possible or not wanted."""
    tools = tuple(tools)
    missing = missing_packages(tools)
    if not missing:
        return
    by_hand = f"apt-get install --no-install-recommends {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise OnenodeError(f"missing: {', '.join(missing)} (named as Debian does); this machine has no apt-get")
    if environment.get("AUTELLIX_NO_INSTALL"):
        raise OnenodeError(f"missing: {', '.join(missing)}. AUTELLIX_NO_INSTALL is set, so please run: {by_hand}")
    if os.geteuid() != 0:
        raise OnenodeError(f"missing: {', '.join(missing)}. As root, run: {by_hand}")
    with locked(MACHINE_STATE / "packages.lock", "installing packages"):
        _install(missing_packages(tools))


def _is_there(tool: str) -> bool:
    if tool.startswith("/"):
        return Path(tool).exists()
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}") is not None


def _install(packages: list[str]) -> None:
    log = cache_folder() / "logs" / "packages.log"
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], what="Debian packages: reading the lists", log=log, environment=quiet)
    with services_kept_from_starting():
        run(
            ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
            what=f"Debian packages: installing {', '.join(packages)}",
            log=log,
            environment=quiet,
        )


@contextlib.contextmanager
def services_kept_from_starting(policy: Path = POLICY) -> Iterator[None]:
    """While it lasts, packages that bring services do not start them. A policy of the machine's own is put back."""
    kept = policy.with_name(f"{policy.name}.autellix-kept")
    if policy.exists() and _POLICY_MARK not in policy.read_text():
        policy.rename(kept)  # a policy of ours was left by a run that was killed
    try:
        policy.write_text(f"#!/bin/sh\n{_POLICY_MARK}\nexit 101\n")
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink()
        if kept.exists():
            kept.rename(policy)
