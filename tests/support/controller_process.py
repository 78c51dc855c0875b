"""The command ``autellix-controller`` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_READY_SECONDS = 60


@dataclass
class ControllerProcess:
    """A running replica."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """Status and body of ``/readyz``; status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(self.url + "/readyz", timeout=5) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except (urllib.error.URLError, ConnectionError):
            return 0, {}

    def wait_ready(self) -> None:
        """Returns when the replica is ready. Raises AssertionError with its log."""
        deadline = time.monotonic() + _READY_SECONDS
        while (state := self.readiness())[0] != 200:
            assert self.process.poll() is None, f"the controller ended:\n{self.log_text()}"
            assert time.monotonic() < deadline, f"not ready: {state}\n{self.log_text()}"
            time.sleep(0.05)

    def terminate(self) -> None:
        """SIGTERM; does not wait."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what a crash is."""
        self.process.kill()
        self.process.wait()

    def log_text(self) -> str:
        """Everything it logged."""
        return self.log.read_text()


@contextmanager
def controller_process(
    folder: Path, port: int, *arguments: str, env: Mapping[str, str] | None = None, ready: bool = True
) -> Iterator[ControllerProcess]:
    """A replica on the port, ended afterwards whatever happens. Its log lies in the folder."""
    log = folder / f"controller-{port}.log"
    listen = ["--listen", f"127.0.0.1:{port}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "autellix_controller", *listen, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
    replica = ControllerProcess(process, f"http://127.0.0.1:{port}", log)
    try:
        if ready:
            replica.wait_ready()
        yield replica
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
