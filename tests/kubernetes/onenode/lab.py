"""A lab: one throw-away Kubernetes in a folder, its life and the ways into it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onenode import cgroups, configuration, mountpoints, namespaces, parts
from onenode.binaries import Binaries, binaries
from onenode.cache import locked
from onenode.commands import output
from onenode.errors import OnenodeError
from onenode.images import pause_image
from onenode.layout import Layout
from onenode.pki import make_pki
from onenode.prerequisites import check_lab, check_privileges
from onenode.progress import say

_PACKAGE_FOLDER = Path(__file__).resolve().parent.parent


class Lab:
    """A one-node Kubernetes whose files are in ``path`` and whose processes are in namespaces of their own.

    Every method works from any process of root, and after any crash: what exists is found by the folder's path alone.
    Methods raise OnenodeError with a message for a person.
    """

    def __init__(self, path: Path) -> None:
        self.layout = Layout(path.absolute())

    # Life

    def up(self, images: Sequence[Path] = ()) -> None:
        """Ends what was left in the folder, starts the cluster and waits until pods can be created.

        ``images`` are archives that containerd imports, besides the pause image. On failure nothing is left but logs.
        """
        check_lab(self.layout.root)
        self._refuse_foreign_folder()
        programs = binaries()
        archives = [pause_image(), *images]
        with self._alone():
            if self.running:
                say(f"ending the Kubernetes that runs in {self.layout.root}")
            self._down(keep_logs=False)
            started = time.monotonic()
            say(f"starting Kubernetes in {self.layout.root}")
            try:
                self._write_files(programs)
                make_pki(self.layout)
                cgroups.create(self.layout)
                namespaces.start(self.layout, programs.pause)
                mountpoints.make()
                self._inside("up", *map(str, archives))
            except BaseException:
                self._down(keep_logs=True)
                raise
            say(f"Kubernetes is up after {time.monotonic() - started:.1f} s")

    def down(self, *, keep_logs: bool = False) -> None:
        """Ends the cluster and removes all it left, whatever state it is in. Does nothing where there is no lab."""
        check_privileges()
        self._refuse_foreign_folder()
        with self._alone():
            there = self.running or self.layout.root.exists()
            say(f"removing {self.layout.root} and all that runs in it" if there else f"nothing in {self.layout.root}")
            self._down(keep_logs=keep_logs)

    @property
    def running(self) -> bool:
        """Whether the lab's first process is there."""
        return namespaces.first_process(self.layout) is not None

    # Ways in

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig. Its address is reachable in the lab's network only."""
        return self.layout.kubeconfig()

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The variables with which kubectl and helm find this cluster and leave the home folder alone."""
        helm = str(self.layout.client_cache / "helm")
        return {
            **base,
            "PATH": f"{self.layout.programs}:{base.get('PATH', os.defpath)}",
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.layout.client_cache / "kubectl"),
            "HELM_CACHE_HOME": helm,
            "HELM_CONFIG_HOME": helm,
            "HELM_DATA_HOME": helm,
        }

    def command(self, command: Sequence[str | Path], *, names: bool = False) -> list[str]:
        """A command line that runs ``command`` in the lab's network.

        With ``names`` it also has the lab's mounts, so that the names of Services resolve.
        """
        process = namespaces.running_first_process(self.layout)
        entry = namespaces.nsenter(process, names=names, folder=Path.cwd() if names else None)
        return [*entry, *map(str, command)]

    def run(
        self, command: Sequence[str | Path], *, stdin: str | None = None, names: bool = False, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in the lab's network, with its output as text; the caller looks at its status."""
        return subprocess.run(
            self.command(command, names=names),
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        """What kubectl prints. Raises OnenodeError when it fails."""
        return self._checked(["kubectl", *arguments], stdin, seconds)

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        """What helm prints. Raises OnenodeError when it fails."""
        return self._checked(["helm", *arguments], stdin, seconds)

    def enter_network(self) -> None:
        """Moves this process into the lab's network. Call it before any thread is started."""
        namespaces.enter_network(namespaces.running_first_process(self.layout))

    def load_image(self, archive: Path) -> None:
        """Gives containerd an image archive."""
        self._inside("import", str(archive))

    # Parts

    def start(self, part: str) -> None:
        """Starts a part that has ended."""
        self._inside("start", part)

    def signal(self, part: str, number: signal.Signals) -> None:
        """Sends a signal to a part, such as SIGKILL, or SIGSTOP and later SIGCONT."""
        if part not in parts.commands(self.layout):
            raise OnenodeError(f"no part is called {part}; there are {', '.join(parts.commands(self.layout))}")
        identity = (self.layout.process_ids / part).read_text().strip()
        process = namespaces.running_first_process(self.layout)
        kill = ["kill", f"-{number.value}", identity]
        output([*namespaces.nsenter(process, everything=True), *kill], what=f"{number.name} to {part}")

    def restart(self, part: str) -> None:
        """Kills a part as a crash would, and starts it again."""
        self.signal(part, signal.SIGKILL)
        self.start(part)

    # Inner workings

    def _write_files(self, programs: Binaries) -> None:
        for folder in (self.layout.root, *self.layout.folders):
            folder.mkdir(parents=True, exist_ok=True)
        self.layout.ownership_mark.touch()
        for name in parts.KUBE_PROGRAMS:
            (self.layout.programs / name).symlink_to(programs.kube)
        for program in (programs.coredns, programs.helm, programs.policies):
            (self.layout.programs / program.name).symlink_to(program)
        for file, text in configuration.files(self.layout).items():
            file.write_text(text)

    def _down(self, *, keep_logs: bool) -> None:
        namespaces.end(self.layout)
        cgroups.remove(self.layout)
        mountpoints.remove_unused()
        if self.layout.root.exists():
            for entry in self.layout.root.iterdir():
                if not (keep_logs and entry in (self.layout.logs, self.layout.ownership_mark)):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            if not keep_logs:
                self.layout.root.rmdir()

    def _inside(self, *arguments: str) -> None:
        process = namespaces.running_first_process(self.layout)
        command = [sys.executable, "-m", "onenode.inside", str(self.layout.root), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(_PACKAGE_FOLDER)}
        result = subprocess.run([*namespaces.nsenter(process, everything=True), *command], env=environment)
        if result.returncode:
            raise OnenodeError(f"the lab in {self.layout.root} failed; logs are in {self.layout.logs}")

    def _checked(self, command: Sequence[str], stdin: str | None, seconds: float) -> str:
        return output(
            self.command(command),
            what=" ".join(command),
            stdin=stdin,
            seconds=seconds,
            environment=self.environment(),
        )

    def _refuse_foreign_folder(self) -> None:
        root = self.layout.root
        ours = self.layout.ownership_mark.exists() or self.running
        if root.exists() and not ours and not (root.is_dir() and not any(root.iterdir())):
            raise OnenodeError(f"{root} holds something that is not a lab; name another folder, or empty it yourself")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with locked(mountpoints.MACHINE_STATE / f"lab-{self.layout.identity}.lock", f"the lab in {self.layout.root}"):
            yield
