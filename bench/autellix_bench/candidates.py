"""The gateways that the gateway benchmarks compare, as processes on given cores."""

import math
import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

import autellix_controller
import autellix_wire

#: As taskset names cores.
ROUTER_CORE, TRAFFIC_CORE, BOTH_CORES = "1", "0", "0,1"
KEY = "key-of-the-bench"
_START_SECONDS = 60.0
#: How much quicker another Python has to be to be preferred to the one that everything else runs on.
_QUICKER = 1.05
_REPEATS = 5
_LOOP = """
import platform, time

def work():
    found = {}
    for number in range(100_000):
        found[number % 100] = (number, str(number))
        for part in found.values():
            if part:
                break
    return found

times = []
for _ in range(3):
    began = time.process_time()
    work()
    times.append(time.process_time() - began)
print(platform.python_version(), min(times))
"""
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
    """A running gateway; no ``pids`` where there is none."""

    name: str
    port: int
    pids: tuple[int, ...] = ()

    def cpu_seconds(self) -> float:
        """CPU of all its processes and their children so far."""
        return sum(_cpu_seconds(process) for pid in self.pids for process in _tree(pid))


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
def process(command: Sequence[str], cores: str, log: Path, env: dict[str, str] | None = None) -> Iterator[int]:
    """A process on these cores, ended afterwards. Its output goes to the log."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["taskset", "-c", cores, *command], stdout=output, stderr=output, env={**os.environ, **(env or {})}
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
        yield Candidate("nginx", port, (pid,))


@contextmanager
def vllm_router(
    folder: Path, port: int, engines: Sequence[int], program: Path, *, cores: str = ROUTER_CORE
) -> Iterator[Candidate]:
    """vllm-router with round robin: the reference."""
    log = folder / "vllm-router.log"
    urls = [f"http://127.0.0.1:{engine}" for engine in engines]
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"]
    command += ["--prometheus-port", str(port + 1), "--worker-urls", *urls]
    with process(command, cores, log) as pid:
        wait_until_it_serves(port, log)
        yield Candidate("vllm-router", port, (pid,))


@dataclass(frozen=True)
class Interpreter:
    """A Python that can run our controller."""

    program: str
    env: dict[str, str]
    version: str
    speed: float
    """Of a fixed loop, as a multiple of that of the Python that runs the benchmark."""

    def describe(self) -> str:
        """For people."""
        return f"{self.program} ({self.version}), {self.speed:.2f}x the speed of the Python that runs the benchmark"


def interpreter() -> Interpreter:
    """This Python, or the system's of the same minor version if that one is quicker.

    The Python of the image and those of distributions are built with profile-guided optimization, one built at home
    mostly is not. A build does not always say so, hence the loop.
    """
    own = Interpreter(sys.executable, {}, platform.python_version(), 1.0)
    other = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(other).exists() or Path(other).samefile(sys.executable):
        return own
    version, theirs = _loop(other)
    ours = math.inf
    for _ in range(_REPEATS):  # in turn, since the machine may be busy
        ours = min(ours, _loop(sys.executable)[1])
        theirs = min(theirs, _loop(other)[1])
    if ours / theirs < _QUICKER:
        return own
    folders = [Path(module.__file__ or "").parents[1] for module in (autellix_controller, autellix_wire, uvloop)]
    return Interpreter(other, {"PYTHONPATH": ":".join(map(str, folders))}, version, ours / theirs)


def _loop(program: str) -> tuple[str, float]:
    """Version of a Python, and the least time of CPU that it takes for a loop of what our steps are made of."""
    found = subprocess.run([program, "-c", _LOOP], capture_output=True, text=True, check=True).stdout.split()
    return found[0], float(found[1])


def _command(folder: Path, port: int, engines: Sequence[int], table: str, python: Interpreter) -> list[str]:
    keys = folder / "keys"
    keys.write_text(f"bench:{KEY}\n")
    command = [python.program, "-m", "autellix_controller", "--listen", f"127.0.0.1:{port}", "--table", table]
    command += ["--api-keys-file", str(keys)]
    for engine in engines:
        command += ["--engine", f"http://127.0.0.1:{engine}"]
    return command


@contextmanager
def autellix(folder: Path, port: int, engines: Sequence[int], table: str, python: Interpreter) -> Iterator[Candidate]:
    """Our controller with all it does: keys, limits, metrics, deadlines, sessions, accounting to etcd, logs."""
    log = folder / "autellix.log"
    with process(_command(folder, port, engines, table, python), ROUTER_CORE, log, python.env) as pid:
        wait_until_it_serves(port, log, "/readyz")
        wait_until_it_serves(port, log)
        yield Candidate("autellix", port, (pid,))


@contextmanager
def autellix_processes(
    folder: Path, port: int, engines: Sequence[int], table: str, python: Interpreter, *, count: int
) -> Iterator[Candidate]:
    """So many processes of it on one port, on both cores."""
    command = [*_command(folder, port, engines, table, python), "--share-port"]
    logs = [folder / f"autellix-{port}-{number}.log" for number in range(count)]
    with ExitStack() as stack:
        pids = tuple(stack.enter_context(process(command, BOTH_CORES, log, python.env)) for log in logs)
        for log in logs:  # each of them joins the port when it is ready
            _wait_for_line(log, '"listening"')
        wait_until_it_serves(port, logs[0])
        yield Candidate(f"autellix x{count}", port, pids)


def _wait_for_line(log: Path, text: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while text not in log.read_text():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {text} in {log}:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
