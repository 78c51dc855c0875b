"""Limits of open files."""

import errno
import resource

import pytest

from autellix_controller import files


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    state = {"now": (1024, 20_000)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: state["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: state.update(now=limit))
    return state


def test_the_limit_is_raised_to_what_the_system_allows(
    limits: dict[str, tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    files.raise_limit(4096)
    assert limits["now"] == (20_000, 20_000)
    assert not caplog.records


def test_a_limit_below_what_the_calls_need_is_said(
    limits: dict[str, tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    files.raise_limit(10_000)
    (record,) = caplog.records
    assert "max_calls" in record.getMessage()


def test_only_what_speaks_of_this_machine_is_exhaustion() -> None:
    assert files.is_exhaustion(OSError(errno.EMFILE, "x"))
    assert not files.is_exhaustion(ConnectionRefusedError(errno.ECONNREFUSED, "x"))
    assert not files.is_exhaustion(TimeoutError())
