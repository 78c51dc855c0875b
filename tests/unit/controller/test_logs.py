import json
import logging
import sys

from autellix_controller.logs import JsonFormatter, fields


def line(message: str, **values: object) -> str:
    record = logging.LogRecord("name", logging.INFO, "file", 1, message, (), None)
    record.__dict__.update(fields(**values))
    return JsonFormatter().format(record)


def test_a_line_is_one_json_object_with_its_own_fields() -> None:
    found = json.loads(line("call", request="r1", seconds=0.5, engine=None))
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "info",
        "logger": "name",
        "message": "call",
        "request": "r1",
        "seconds": 0.5,
        "engine": None,
    }


def test_control_characters_are_escaped() -> None:
    assert "\n" not in line('a\n{"level":"error"}', engine="\x1b[31m\r\n")
    assert "\x1b" not in line("a", engine="\x1b[31m")


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("name", logging.ERROR, "file", 1, "failed", (), sys.exc_info())
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "ValueError: two\nlines" in json.loads(text)["exception"]


def test_what_json_does_not_know_is_shown_as_text() -> None:
    assert json.loads(line("x", error=OSError("no")))["error"] == "no"
