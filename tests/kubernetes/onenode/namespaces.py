"""The process that holds a lab's namespaces: how it is started, found, entered and ended.

One process owns the lab: process 1 of its process-id namespace. When it dies the kernel ends every process of the lab
and drops its mounts and network devices. It is found by an argument that no other process has, so nothing has to be
remembered in a file that a crash could leave wrong.
"""

import ctypes
import os
import signal
import subprocess
from pathlib import Path

from onenode.errors import OnenodeError
from onenode.layout import Layout
from onenode.waiting import wait_until

_HOLDERS = {"unshare", "pause"}
_MARK_OF_ANY_LAB = "autellix-lab:"
_PROC = Path("/proc")


def start(layout: Layout, pause: Path) -> int:
    """Starts the lab's first process in new network, mount and process-id namespaces; returns its id."""
    unshare = [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
    ]
    with layout.log("first-process").open("wb") as log:
        subprocess.run(
            ["setsid", "--fork", *unshare, pause, layout.process_mark],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    try:
        wait_until(lambda: first_process(layout) is not None, "the lab's first process", seconds=10)
    except OnenodeError as error:
        raise OnenodeError(f"{error}; {layout.log('first-process').read_text().strip()}") from error
    return running_first_process(layout)


def first_process(layout: Layout) -> int | None:
    """The id of the lab's first process, if the lab runs."""
    for process in _marked(layout.process_mark):
        try:
            status = (_PROC / str(process) / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if is_first_in_namespace(status):
            return process
    return None


def running_first_process(layout: Layout) -> int:
    """The id of the lab's first process. Raises OnenodeError when the lab does not run."""
    process = first_process(layout)
    if process is None:
        raise OnenodeError(f"no lab runs in {layout.root}; `make kubernetes-up` or `make demo` starts one")
    return process


def is_first_in_namespace(status: str) -> bool:
    """Whether /proc/PID/status is that of process 1 of a process-id namespace below ours."""
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(ids) > 1 and ids[-1] == "1"


def end(layout: Layout) -> None:
    """Kills the lab's first process, and with it all others; returns when they are gone."""

    def none_left() -> bool:
        processes = _marked(layout.process_mark)
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended by itself in the meantime, which is what is wanted
        return not processes

    wait_until(none_left, f"the end of the processes of {layout.root}", seconds=60)


def any_lab_runs() -> bool:
    """Whether there is any lab on this machine, in whatever folder."""
    return any(any(word.startswith(_MARK_OF_ANY_LAB) for word in words) for _, words in _holder_processes())


def running_labs() -> list[Path]:
    """The folders of all labs that run on this machine."""
    marks = {word for _, words in _holder_processes() for word in words if word.startswith(_MARK_OF_ANY_LAB)}
    return sorted(Path(mark.removeprefix(_MARK_OF_ANY_LAB)) for mark in marks)


def nsenter(process: int, *, everything: bool = False, names: bool = False, folder: Path | None = None) -> list[str]:
    """The beginning of a command that runs in a lab: in its network only, or also in its mounts (``names``: service
    names resolve), or as a process of the node (``everything``). ``folder`` is the working folder in other mounts."""
    mounts = ["--mount"] if everything or names else []
    processes = ["--pid"] if everything else []
    where = [f"--wd={folder}"] if folder is not None else []
    return ["nsenter", f"--target={process}", "--net", *mounts, *processes, *where, "--"]


def enter_network(process: int) -> None:
    """Moves the calling thread, and threads and processes it starts later, into the network of a process.

    Call it before any thread is started: threads that exist stay where they are.
    """
    clone_newnet = 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, clone_newnet) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the lab's network: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def _marked(mark: str) -> list[int]:
    return [process for process, words in _holder_processes() if mark in words]


def _holder_processes() -> list[tuple[int, list[str]]]:
    """Every process of this machine that may hold a lab's namespaces, and its arguments."""
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            if os.path.basename(words[0]) in _HOLDERS:
                found.append((int(folder.name), words))
    return found
