"""Tells Kubernetes what ended vLLM: the exception of the process in which it began.

vLLM runs as several processes. The engine core, or a worker, logs what ends it; the server then ends with "See root
cause above", and its traceback pushes the cause out of the 2048 bytes of a log's end that Kubernetes keeps. So the
process that fails puts its cause into the termination log itself.
"""

import logging
from collections.abc import Mapping
from typing import Final

from autellix_engine.launcher.termination import explain

#: Where vLLM logs an exception that ends a process: logger and function. Elsewhere it logs exceptions that it survives.
PLACES: Final = {
    "vllm.v1.engine.core": "run_engine_core",
    "vllm.v1.executor.multiproc_executor": "worker_main",
}
#: Some sentences: enough for a cause, and less than a condition shows.
MAX_CHARACTERS: Final = 500


class FatalErrors(logging.Handler):
    """Writes the first exception that it is given at one of ``PLACES`` to the termination log."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(logging.ERROR)
        self._env = env

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or record.funcName != PLACES.get(record.name):
            return
        try:
            explain(in_one_line(error), self._env)
        except OSError:
            self.handleError(record)


def install(env: Mapping[str, str]) -> None:
    """Begins to listen in this process; the first of its processes that fails is the one whose cause is kept."""
    handler = FatalErrors(env)
    for name in PLACES:
        logging.getLogger(name).addHandler(handler)


def in_one_line(error: BaseException) -> str:
    """Type and message of an exception; of a long message the beginning, where the cause stands."""
    line = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return line if len(line) <= MAX_CHARACTERS else line[: MAX_CHARACTERS - 2] + " …"
