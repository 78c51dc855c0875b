"""The command line, run as a process up to the point where vLLM would begin."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from autellix_engine.launcher.serve import help_text, serve
from autellix_engine.policy.settings import SchedulingSettings
from autellix_engine.swap.settings import SwapSettings

KEY = "the-secret-key"


def run(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AUTELLIX_", "VLLM_"))}
    return subprocess.run(
        [sys.executable, "-m", "autellix_engine", *arguments],
        env=inherited | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_refused_start_is_one_line_and_status_2_and_goes_to_the_termination_log(short_path: Path) -> None:
    termination_log = short_path / "termination-log"
    termination_log.touch()
    env = {"AUTELLIX_ENGINE_KEY": KEY, "AUTELLIX_TERMINATION_LOG": str(termination_log), "TMPDIR": str(short_path)}
    result = run(["serve", "m", "--scheduling", '{"policy": "sjf"}'], env)
    assert result.returncode == 2
    assert result.stderr.startswith("autellix-engine: --scheduling.policy: ")
    assert result.stderr.count("\n") == 1
    assert termination_log.read_text() == result.stderr
    assert list(short_path.iterdir()) == [termination_log]  # nothing is left behind


def test_a_missing_termination_log_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none"
    result = run(["serve", "m", "--api-key", "x"], {"AUTELLIX_TERMINATION_LOG": str(path)})
    assert (result.returncode, path.exists()) == (2, False)


def test_no_folder_for_the_record_channel_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert serve(["m"], {"AUTELLIX_ENGINE_KEY": KEY, "AUTELLIX_TERMINATION_LOG": ""}) == 2
    assert capsys.readouterr().err.startswith("autellix-engine: TMPDIR: no folder can be made there: ")


def test_it_becomes_vllm_in_the_same_process(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *call: became.append(call))
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    serve(["--model", "m", "--port", "8000"], {"AUTELLIX_ENGINE_KEY": KEY})
    ((program, arguments, environment),) = became
    assert program == sys.executable == arguments[0]
    assert arguments[3:5] == ["serve", "m"]
    folder = Path(environment["AUTELLIX_RECORDS_SOCKET"]).parent
    assert folder.parent == short_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "autellix" in environment["VLLM_PLUGINS"].split(",")


def test_starting_imports_neither_vllm_nor_torch() -> None:
    code = (
        "import sys, autellix_engine.launcher.serve as serve;"
        "serve.os.execve = lambda *_: None;"
        "serve.serve(['m', '--host', '127.0.0.1'], {});"
        "sys.exit(bool({'vllm', 'torch', 'zmq', 'fastapi'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "")
    assert "nor AUTELLIX_ENGINE_KEY is set" in result.stderr


def test_drain_imports_the_standard_library_alone() -> None:
    code = (
        "import sys; known = set(sys.stdlib_module_names) | {'autellix_engine'} | set(sys.modules);"
        "import autellix_engine.drain;"
        "print([name for name in sys.modules if name.partition('.')[0] not in known])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"


def test_help_explains_every_setting_and_variable() -> None:
    text = run(["serve", "--help"]).stdout
    assert text == help_text()
    options = ("--scheduling", "--swap", "--open-metrics", "AUTELLIX_ENGINE_KEY")
    for name in (*SchedulingSettings.model_fields, *SwapSettings.model_fields, *options):
        assert name in text
    assert max(map(len, text.splitlines())) <= 130


def test_the_command_says_how_it_is_used() -> None:
    assert run(["--version"]).stdout.startswith("autellix-engine ")
    assert "serve --help" in run(["--help"]).stdout
    for arguments, problem in (([], "a command is missing"), (["bench"], "'bench' is not a command")):
        result = run(arguments)
        assert result.returncode == 2
        assert problem in result.stderr
