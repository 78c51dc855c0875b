"""The one folder where slow results are kept. Everything in it can be made again; wiping it costs time only."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from onenode.errors import OnenodeError
from onenode.progress import Heartbeat

UNUSED_DAYS = 14.0


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``$XDG_CACHE_HOME/autellix``, or ``~/.cache/autellix``. A relative XDG path is ignored, as its standard says."""
    base = environment.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "autellix"


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """A short name for named contents: equal parts give equal names, and no part can pass for another."""
    whole = hashlib.sha256()
    for name, content in parts:
        for field in (name.encode(), content):
            whole.update(len(field).to_bytes(8, "big"))
            whole.update(field)
    return whole.hexdigest()[:16]


@contextlib.contextmanager
def locked(path: Path, what: str, *, refusal: str = "") -> Iterator[None]:
    """Holds a lock between processes. The kernel drops it when its holder dies, however that happens.

    Raises OnenodeError when nothing can be written to the folder of ``path``. While another process has the lock it
    waits; with a ``refusal`` it raises OnenodeError with that text instead.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise OnenodeError(
            f"cannot write to {path.parent}: {error.strerror}; make it writable, or name another cache: XDG_CACHE_HOME"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if refusal:
                raise OnenodeError(refusal) from error
            with Heartbeat(f"waiting for another process: {what}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def published(target: Path, make: Callable[[Path], None], what: str) -> Path:
    """The folder ``target``, filled by ``make`` if it is not there yet.

    ``make`` is given an empty folder beside it, which becomes ``target`` by one rename: others see all of it or
    nothing. Of several processes that want the same folder one makes it and the rest wait.
    """
    if not _in_use(target):
        with locked(target.with_name(f"{target.name}.lock"), what):
            if not _in_use(target):
                _make(target, make)
    return target


def prune(folder: Path, *, unused_days: float = UNUSED_DAYS, now: Callable[[], float] = time.time) -> None:
    """Removes what was published in ``folder`` and has not been asked for in ``unused_days``."""
    with locked(folder / ".prune.lock", "removing old results"):
        for entry in folder.iterdir():
            if entry.is_dir() and now() - entry.stat().st_mtime > unused_days * 86400:
                shutil.rmtree(entry)


def _in_use(target: Path) -> bool:
    """Whether the folder is there; if so, notes that it is needed."""
    try:
        os.utime(target)
    except OSError:  # not there; or of another user, which is as good, but not ours to mark
        return os.path.isdir(target)
    return True


def _make(target: Path, make: Callable[[Path], None]) -> None:
    prefix = f".{target.name}."
    for left_over in target.parent.glob(f"{prefix}*"):  # of a process that died; we hold the lock
        shutil.rmtree(left_over)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        make(folder)
        folder.chmod(0o755)
        folder.rename(target)
    finally:
        if folder.exists():
            shutil.rmtree(folder)
