import asyncio
import json
import logging
import os
import select
import sys

import pytest

from autellix_controller.logs import JsonFormatter, LineHandler, Record, fields


def line(message: str, **values: object) -> str:
    record = Record("name", logging.INFO, "file", 1, message, (), None)
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
        record = Record("name", logging.ERROR, "file", 1, "failed", (), sys.exc_info())
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "ValueError: two\nlines" in json.loads(text)["exception"]


def test_what_json_does_not_know_is_shown_as_text() -> None:
    assert json.loads(line("x", error=OSError("no")))["error"] == "no"


async def test_lines_of_a_moment_are_written_together_and_warnings_at_once() -> None:
    reading, writing = os.pipe()
    handler = LineHandler(writing)
    handler.setFormatter(JsonFormatter())
    try:

        def say(message: str, level: int) -> None:
            handler.emit(Record("name", level, "file", 1, message, (), None))

        os.set_blocking(reading, False)
        say("one", logging.INFO)
        say("two", logging.INFO)
        with pytest.raises(BlockingIOError):
            os.read(reading, 10_000)
        await asyncio.to_thread(select.select, [reading], [], [], 60)
        assert [json.loads(text)["message"] for text in os.read(reading, 10_000).splitlines()] == ["one", "two"]
        say("three", logging.INFO)
        say("four", logging.WARNING)
        assert [json.loads(text)["message"] for text in os.read(reading, 10_000).splitlines()] == ["three", "four"]
        await asyncio.sleep(0.1)
        with pytest.raises(BlockingIOError):
            os.read(reading, 10_000)
    finally:
        os.close(reading)
        os.close(writing)


def test_outside_of_a_loop_a_line_is_written_at_once() -> None:
    reading, writing = os.pipe()
    handler = LineHandler(writing)
    try:
        handler.emit(Record("name", logging.INFO, "file", 1, "x", (), None))
        assert os.read(reading, 100) == b"x\n"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("args", [(), (1, "b"), ({"a": 1},), ("c",), (("c",),)])
def test_a_record_says_what_the_standard_one_would_say(args: tuple[object, ...]) -> None:
    message = "%(a)s" if args and isinstance(args[0], dict) else "%s " * len(args)
    standard = logging.LogRecord("name", logging.WARNING, "file", 1, message, args, None)
    ours = Record("name", logging.WARNING, "file", 1, message, args, None)
    assert ours.getMessage() == standard.getMessage()
    assert (ours.name, ours.levelname, ours.levelno) == (standard.name, standard.levelname, standard.levelno)
