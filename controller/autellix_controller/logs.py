"""Structured logs: one JSON object a line on standard error.

JSON escapes control characters, so nothing a client sends can forge or break a line.
"""

import datetime
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

#: Name of the attribute under which a record carries its own fields (see ``fields``).
_ATTRIBUTE: Final = "autellix_fields"


def fields(**values: Any) -> Mapping[str, Mapping[str, Any]]:
    """The ``extra`` argument of a log call: ``log.info("call ended", extra=fields(request=...))``."""
    return {_ATTRIBUTE: values}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _ATTRIBUTE, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(level: str) -> None:
    """Sends the logs of the whole process to standard error as JSON. ``level`` is a name of the logging module."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their per-request and per-connection lines say nothing that ours do not.
    for chatty in ("uvicorn", "aiohttp", "asyncio", "kubernetes"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
