"""Structured logs: one JSON object a line on standard error.

JSON escapes control characters, so nothing a client sends can forge or break a line.
"""

import asyncio
import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

#: Name of the attribute under which a record carries its own fields (see ``fields``).
_ATTRIBUTE: Final = "autellix_fields"
#: How long a line may wait for others: a write for each call would cost more than making the line does.
_GATHER_SECONDS: Final = 0.05


def fields(**values: Any) -> Mapping[str, Mapping[str, Any]]:
    """The ``extra`` argument of a log call: ``log.info("call ended", extra=fields(request=...))``."""
    return {_ATTRIBUTE: values}


@functools.lru_cache(maxsize=4)
def _utc(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        second, fraction = divmod(record.created, 1.0)
        line: dict[str, Any] = {
            "time": f"{_utc(int(second))}.{int(fraction * 1000):03d}+00:00",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _ATTRIBUTE, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class Record(logging.LogRecord):
    """A record with what ``JsonFormatter`` writes and no more: there is one for each call, and where in the code it was
    made, in which thread and process, costs more to find out than the line itself."""

    def __init__(
        self,
        name: str,
        level: int,
        pathname: str,
        lineno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        sinfo: str | None = None,
    ) -> None:
        self.name, self.levelno, self.levelname = name, level, logging.getLevelName(level)
        self.msg = msg
        self.args = args[0] if args and len(args) == 1 and isinstance(args[0], Mapping) else args  # for %(name)s
        self.exc_info, self.exc_text, self.stack_info = exc_info, None, sinfo
        self.created = time.time()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class LineHandler(logging.Handler):
    """Writes lines to a file descriptor: those of a twentieth of a second together, warnings and worse at once, with
    what came before them. Outside of an event loop every line is written at once."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        try:
            self._lines.append(self.format(record))
            if record.levelno < logging.WARNING and (loop := _running_loop()) is not None:
                if self._timer is None:
                    self._timer = loop.call_later(_GATHER_SECONDS, self._gathered)
            else:
                self.flush()
        except Exception:
            self.handleError(record)

    def _gathered(self) -> None:
        self._timer = None
        self.flush()

    def flush(self) -> None:
        """See ``logging.Handler``. Leaves the timer alone: other threads come here too."""
        with self.lock or contextlib.nullcontext():
            lines, self._lines = self._lines, []
            data = memoryview("".join(f"{line}\n" for line in lines).encode(errors="replace"))
            while data:
                data = data[os.write(self._descriptor, data) :]


def configure(level: str) -> None:
    """Sends the logs of the whole process to standard error as JSON. ``level`` is a name of the logging module."""
    handler = LineHandler(sys.stderr.fileno())
    handler.setFormatter(JsonFormatter())
    logging.setLogRecordFactory(Record)
    logging._srcfile = None  # no search for the calling line: see "Optimization" in the documentation of logging
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their per-request and per-connection lines say nothing that ours do not.
    for chatty in ("uvicorn", "aiohttp", "asyncio", "kubernetes"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
