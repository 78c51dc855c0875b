"""The gateways that the gateway benchmark compares, as processes on a core of their own."""

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

import autellix_controller
import autellix_wire

ROUTER_CORE, TRAFFIC_CORE = 1, 0
KEY = "key-of-the-bench"
_START_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")

NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m; client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 100000000;
  upstream engines {{ {servers} keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


@dataclass
class Candidate:
    """A running gateway; ``pid`` is None where there is none."""

    name: str
    port: int
    pid: int | None

    def cpu_seconds(self) -> float:
        """CPU of the whole process tree so far."""
        return sum(map(_cpu_seconds, _tree(self.pid))) if self.pid is not None else 0.0


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def process(command: Sequence[str], core: int, log: Path, env: dict[str, str] | None = None) -> Iterator[int]:
    """A process on one core, ended afterwards. Its output goes to the log."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["taskset", "-c", str(core), *command], stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
    try:
        yield running.pid
    finally:
        running.terminate()
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_until_it_serves(port: int, log: Path, path: str = "/v1/models") -> None:
    """Returns once the port answers. Raises RuntimeError with the log's end."""
    deadline = time.monotonic() + _START_SECONDS
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {KEY}"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=2):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing serves on {port}: {error}\n{log.read_text()[-2000:]}") from None
            time.sleep(0.1)


@contextmanager
def nginx(folder: Path, port: int, engines: Sequence[int]) -> Iterator[Candidate]:
    """nginx with pooled connections, no logs."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise SystemExit("bench-gateway: nginx is missing: apt-get install --no-install-recommends nginx-light")
    servers = " ".join(f"server 127.0.0.1:{engine};" for engine in engines)
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, servers=servers, port=port))
    log = folder / "nginx.out"
    with process([program, "-e", str(folder / "nginx.log"), "-c", str(file)], ROUTER_CORE, log) as pid:
        wait_until_it_serves(port, log)
        yield Candidate("nginx", port, pid)


@contextmanager
def vllm_router(folder: Path, port: int, engines: Sequence[int], program: Path) -> Iterator[Candidate]:
    """vllm-router with round robin: the reference."""
    log = folder / "vllm-router.log"
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"]
    command += ["--prometheus-port", str(port + 1), "--worker-urls", *urls]
    with process(command, ROUTER_CORE, log) as pid:
        wait_until_it_serves(port, log)
        yield Candidate("vllm-router", port, pid)


@dataclass(frozen=True)
class Interpreter:
    """A Python that can run our controller."""

    program: str
    env: dict[str, str]
    optimized: bool
    """Built with profile-guided optimization, as the Python of the image is: a third faster than one without."""


def interpreter() -> Interpreter:
    """This Python, or the system's of the same version if that one is optimized and this one is not."""
    if _optimized(sys.executable):
        return Interpreter(sys.executable, {}, True)
    other = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if Path(other).exists() and _optimized(other):
        folders = [Path(module.__file__ or "").parents[1] for module in (autellix_controller, autellix_wire, uvloop)]
        return Interpreter(other, {"PYTHONPATH": ":".join(map(str, folders))}, True)
    return Interpreter(sys.executable, {}, False)


def _optimized(program: str) -> bool:
    question = "import sysconfig; print('--enable-optimizations' in (sysconfig.get_config_var('CONFIG_ARGS') or ''))"
    return subprocess.run([program, "-c", question], capture_output=True, text=True).stdout.strip() == "True"


@contextmanager
def autellix(folder: Path, port: int, engines: Sequence[int], table: str, python: Interpreter) -> Iterator[Candidate]:
    """Our controller with all it does: keys, limits, metrics, deadlines, sessions, accounting to etcd, logs."""
    log = folder / "autellix.log"
    keys = folder / "keys"
    keys.write_text(f"bench:{KEY}\n")
    command = [python.program, "-m", "autellix_controller", "--listen", f"127.0.0.1:{port}", "--table", table]
    command += ["--api-keys-file", str(keys)]
    for engine in engines:
        command += ["--engine", f"http://127.0.0.1:{engine}"]
    with process(command, ROUTER_CORE, log, python.env) as pid:
        wait_until_it_serves(port, log, "/readyz")
        wait_until_it_serves(port, log)
        yield Candidate("autellix", port, pid)
