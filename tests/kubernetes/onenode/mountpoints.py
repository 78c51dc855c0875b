"""Folders that have to exist on the machine so that labs can mount their own over them.

They stay empty. Those that were not there before are removed when the last lab ends: removing one while another lab
has something mounted on it would take the mount away.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from onenode.cache import locked
from onenode.layout import BORROWED_FOLDERS
from onenode.namespaces import any_lab_runs

MACHINE_STATE = Path("/run/lock/autellix-onenode")


def make() -> None:
    """Makes what is missing. Call it when the lab's first process runs: that keeps others from removing it again."""
    with _record() as record:
        for folder in map(Path, BORROWED_FOLDERS):
            if not folder.exists():
                folder.mkdir(parents=True)
                with record.open("a") as lines:
                    lines.write(f"{folder}\n")


def remove_unused() -> None:
    """Removes what ``make`` made, unless a lab runs or something has been put there."""
    with _record() as record:
        if record.exists() and not any_lab_runs():
            for line in record.read_text().splitlines():
                _remove_if_empty(Path(line))
            record.unlink()


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY):
            raise


@contextlib.contextmanager
def _record() -> Iterator[Path]:
    with locked(MACHINE_STATE / "machine.lock", "mount points"):
        yield MACHINE_STATE / "made-folders"
