"""Keeps on disk what a run has found so far, and ends a run that takes too long, whatever it is waiting for."""

import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from swapbench.report import Results, table, write

STOPPED = 3
"""Exit status of a run that was ended here."""


class Keeper:
    """Writes results to a folder. As a context it ends the process after `limit_seconds`.

    A transfer that never ends holds the main thread inside the driver, where no exception reaches it. So a thread of
    its own writes down what there is and ends the process.
    """

    def __init__(self, results: Results, folder: Path, limit_seconds: float) -> None:
        self._results = results
        self._folder = folder
        self._limit = limit_seconds
        self._writing = threading.Lock()
        self._timer = threading.Timer(limit_seconds, self._stop)
        self._timer.daemon = True

    def save(self) -> tuple[Path, Path]:
        """Writes the JSON file and the figure as of now; returns where they are."""
        with self._writing:
            return write(self._results, self._folder)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def _stop(self) -> None:
        self._results.errors.append(f"stopped after {self._limit:g} s: something did not end")
        try:
            self.save()
            sys.stdout.write(f"{table(self._results)}\n")
            sys.stdout.flush()
        finally:  # also when the disk is full or nobody reads
            os._exit(STOPPED)
