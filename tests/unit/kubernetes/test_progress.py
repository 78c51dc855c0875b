import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onenode.errors import OnenodeError
from onenode.progress import Heartbeat, run
from onenode.waiting import wait_until


def test_long_work_is_said_to_go_on_with_how_far_it_is() -> None:
    said: list[str] = []
    twice = threading.Event()

    def tell(message: str) -> None:
        said.append(message)
        if len(said) == 3:
            twice.set()

    with Heartbeat("compiling", describe=lambda: "7 packages", interval_seconds=0.01, tell=tell):
        assert twice.wait(60)
    assert said[0] == "compiling ..."
    assert re.fullmatch(r"compiling \.\.\. \d+ s, 7 packages", said[1])


def test_a_command_that_fails_shows_the_end_of_its_output(tmp_path: Path) -> None:
    script = "import sys; print('a'); print('the reason', file=sys.stderr); sys.exit(3)"
    with pytest.raises(OnenodeError, match=r"(?s)work: failed with status 3.*\n  a\n  the reason"):
        run([sys.executable, "-c", script], what="work", log=tmp_path / "logs" / "work.log")


def test_a_command_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OnenodeError, match="work: no-such-tool is not installed"):
        run(["no-such-tool"], what="work", log=tmp_path / "log")


def test_waiting_ends_with_what_was_awaited() -> None:
    with pytest.raises(OnenodeError, match="the sun: not within 0 s"):
        wait_until(lambda: False, "the sun", seconds=0.01, poll_seconds=0.001)
    with pytest.raises(OnenodeError, match=r"(?s)the sun: not within 0 s\nit is night"):
        wait_until(lambda: False, "the sun", seconds=0.01, poll_seconds=0.001, detail=lambda: "it is night")


def test_a_refused_connection_is_not_yet_an_answer() -> None:
    answers: Iterator[OSError | bool] = iter([ConnectionRefusedError(), False, True])

    def condition() -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    wait_until(condition, "the server", seconds=60, poll_seconds=0.001)


def test_a_command_that_is_told_to_end_unwinds_first() -> None:
    script = (
        "import os, signal, sys\n"
        "from onenode import cli\n"
        "def build(options):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        signal.pause()\n"
        "    finally:\n"
        "        print('unwound')\n"
        "cli._build = build\n"
        "sys.exit(cli.main(['build']))\n"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "kubernetes")}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (128 + signal.SIGTERM, "unwound\n"), result.stderr
