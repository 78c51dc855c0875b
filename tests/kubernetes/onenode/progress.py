"""Long work that shows it is alive: what happens, and since when, on standard error."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onenode.errors import OnenodeError

HEARTBEAT_SECONDS = 15.0
_TAIL_LINES = 15


def say(message: str) -> None:
    """Tells the person at the keyboard one thing. Standard output stays free for results."""
    print(message, file=sys.stderr, flush=True)


class Heartbeat:
    """Says ``what`` once, then again at every interval with the time it has taken, until the work is over.

    ``describe`` may add how far the work has come; it is called from another thread.
    """

    def __init__(
        self,
        what: str,
        *,
        describe: Callable[[], str] = lambda: "",
        interval_seconds: float = HEARTBEAT_SECONDS,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._what = what
        self._describe = describe
        self._interval_seconds = interval_seconds
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._started = 0.0

    def __enter__(self) -> "Heartbeat":
        self._started = time.monotonic()
        self._tell(f"{self._what} ...")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """How long the work has taken so far."""
        return time.monotonic() - self._started

    def _beat(self) -> None:
        while not self._over.wait(self._interval_seconds):
            detail = self._describe()
            self._tell(f"{self._what} ... {self.seconds:.0f} s{', ' + detail if detail else ''}")


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    log: Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    describe: Callable[[str], str] = lambda text: "",
) -> None:
    """Runs a command that may take long: its output goes to ``log``, a heartbeat to the terminal.

    ``environment`` is added to this process's own. ``describe`` turns the output so far into a few words.
    Raises OnenodeError with the last lines of the output when the command fails or cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, Heartbeat(what, describe=lambda: describe(_text(log))) as heartbeat:
        try:
            result = subprocess.run(
                command,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except FileNotFoundError as missing:
            raise OnenodeError(f"{what}: {missing.filename} is not installed") from missing
    if result.returncode:
        lines = _text(log).splitlines()[-_TAIL_LINES:]
        raise OnenodeError(
            "\n".join(
                [f"{what}: failed with status {result.returncode}; the end of {log}:", *("  " + x for x in lines)]
            )
        )
    say(f"{what}: done in {heartbeat.seconds:.0f} s")


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")
