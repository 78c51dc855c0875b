"""A real engine as a process of its own: ``vllm serve`` on the tiny model, on a CPU, on a free loopback port.

    with EngineServer(args=["--max-num-seqs", "2"], key="secret") as engine:
        httpx.get(engine.url + "/health")

Its start takes half a minute, so tests share one where they can.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.ports import free_ports
from support.tiny_model import tiny_model

MODEL_NAME = "tiny"
START_SECONDS = 240.0
"""How long a start may take on a machine that is busy with other things."""
STOP_SECONDS = 40.0
_LOG = "engine.log"
_LOG_LINES_SHOWN = 80


class EngineFailed(Exception):
    """The engine did not start, or ended by itself; the message ends with its log."""


class EngineServer:
    """One engine. A context manager, also an asynchronous one.

    ``stock`` starts plain ``vllm serve``, without anything of ours, to compare with. ``args`` go to ``vllm serve``,
    ``env`` is added to the environment. ``model`` is a folder or a name; the default is the tiny model.
    """

    def __init__(
        self,
        *,
        scheduling: Mapping[str, Any] | None = None,
        args: Sequence[str] = (),
        key: str | None = None,
        stock: bool = False,
        env: Mapping[str, str] | None = None,
        model: str | None = None,
    ) -> None:
        if stock and (scheduling is not None or key is not None):
            raise ValueError("a stock engine takes neither scheduling nor key")
        self.key = key
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        """What a request needs to be let in."""
        self._command = _command(stock, model or str(tiny_model()), scheduling, self.port, args)
        self._environment = _environment(key) | dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._said = ""

    @property
    def pid(self) -> int:
        """The API server's process, the one that signals go to."""
        return self._running().pid

    def start(self) -> None:
        """Starts the engine and returns when it is healthy. Raises EngineFailed."""
        # Its sockets go there too, so the path has to be short.
        self._folder = Path(tempfile.mkdtemp(prefix="engine-"))
        with (self._folder / _LOG).open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment | {"TMPDIR": str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that the whole family can be ended
            )
        try:
            self._wait_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the engine: as Kubernetes does first, by force whatever is left then."""
        process = self._running()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _kill_group(process.pid)
            process.wait()
            self._said = self.log_text()
            if self._folder is not None:
                shutil.rmtree(self._folder)
                self._folder = None

    def wait_ended(self, timeout_seconds: float) -> int:
        """The exit status, once the engine has ended by itself. Raises subprocess.TimeoutExpired."""
        return self._running().wait(timeout_seconds)

    def log_text(self) -> str:
        """Everything the engine has said so far; of one that was stopped, all it said."""
        return self._said if self._folder is None else (self._folder / _LOG).read_text(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is not None and not isinstance(error, EngineFailed):
            error.add_note(f"The engine said:\n{self._log_end()}")

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _wait_healthy(self) -> None:
        process = self._running()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise EngineFailed(f"The engine ended with status {process.returncode}:\n{self._log_end()}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise EngineFailed(f"The engine was not healthy after {START_SECONDS:g} s:\n{self._log_end()}")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the engine was not started"
        return self._process

    def _log_end(self) -> str:
        return "\n".join(self.log_text().splitlines()[-_LOG_LINES_SHOWN:])


def _command(
    stock: bool, model: str, scheduling: Mapping[str, Any] | None, port: int, args: Sequence[str]
) -> list[str]:
    launcher = ["-m", "vllm.entrypoints.cli.main"] if stock else ["-m", "autellix_engine"]
    settings = [] if scheduling is None else ["--scheduling", json.dumps(scheduling)]
    return [
        *(sys.executable, *launcher, "serve", model, *settings),
        *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", "4096", "--enforce-eager", *args),
    ]


def _environment(key: str | None) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        # Without bytecode a start takes twice as long. What configures engines must come from the test alone.
        if name != "PYTHONDONTWRITEBYTECODE" and not name.startswith(("AUTELLIX_", "VLLM_"))
    }
    return (
        inherited
        | {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "AUTELLIX_DRAIN_SECONDS": "0",  # vLLM takes some ten seconds to end by itself
        }
        | ({"AUTELLIX_ENGINE_KEY": key} if key else {})
    )


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of it has ended
