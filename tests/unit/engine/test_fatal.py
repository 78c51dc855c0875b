"""What ends one of vLLM's processes, in the container's termination log."""

import logging
import sys
from pathlib import Path

import pytest

from autellix_engine import fatal
from autellix_engine.fatal import MAX_CHARACTERS, FatalErrors, in_one_line
from autellix_engine.launcher import handover

CORE, WORKER = fatal.PLACES


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    return path


def failure(error: Exception, logger: str, function: str) -> logging.LogRecord:
    """What vLLM logs, in a function of that name, of an exception that it has caught."""
    try:
        raise error
    except Exception:
        return logging.LogRecord(logger, logging.ERROR, "x.py", 1, "It failed.", None, sys.exc_info(), func=function)


def heard(log: Path, *records: logging.LogRecord) -> str:
    handler = FatalErrors({handover.TERMINATION_LOG: str(log)})
    for record in records:
        handler.handle(record)
    return log.read_text()


@pytest.mark.parametrize(("logger", "function"), fatal.PLACES.items())
def test_what_ends_a_process_is_told(log: Path, logger: str, function: str) -> None:
    assert heard(log, failure(ValueError("no room"), logger, function)) == "ValueError: no room\n"


def test_the_first_cause_stays_for_those_after_it_are_consequences(log: Path) -> None:
    worker = failure(MemoryError("CUDA out of memory"), WORKER, "worker_main")
    core = failure(RuntimeError("See stack trace for root cause."), CORE, "run_engine_core")
    assert heard(log, worker, core) == "MemoryError: CUDA out of memory\n"


def test_what_a_process_survives_is_not_told(log: Path) -> None:
    survived = failure(ValueError("unknown adapter"), CORE, "_invoke_utility_method")
    words = logging.LogRecord(CORE, logging.ERROR, "x.py", 1, "bad", None, None, func="run_engine_core")
    assert heard(log, survived, words) == ""


def test_where_there_is_no_termination_log_nothing_is_written(log: Path) -> None:
    log.unlink()
    FatalErrors({handover.TERMINATION_LOG: str(log)}).handle(failure(ValueError("x"), CORE, "run_engine_core"))
    assert not log.exists()


def test_a_cause_is_one_line_of_a_bounded_length() -> None:
    assert in_one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert in_one_line(AssertionError()) == "AssertionError"
    long = in_one_line(ValueError("no room " * 200))
    assert len(long) == MAX_CHARACTERS
    assert long.startswith("ValueError: no room")
    assert long.endswith("…")


def test_listening_begins_in_the_process_where_it_is_asked_for(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in fatal.PLACES:
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
    fatal.install({handover.TERMINATION_LOG: str(log)})

    def run_engine_core() -> None:
        logging.getLogger(CORE).error("EngineCore failed to start.", exc_info=ValueError("no room"))

    run_engine_core()
    assert log.read_text() == "ValueError: no room\n"
