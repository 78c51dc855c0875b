"""Log lines on standard error, as text or as JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Final, Literal

_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(log_format: Literal["json", "text"], level: str) -> None:
    """Sets up logging for the whole process."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf tells of every event of every object; that helps nobody who reads our log.
    logging.getLogger("kopf").setLevel(max(root.level, logging.INFO))
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
