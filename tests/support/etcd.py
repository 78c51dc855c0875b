"""A real etcd for tests: one or three members on loopback, which can be killed, restarted, wiped, stopped, compacted.

The binary is the multi-call ``kube`` of the throw-away Kubernetes, called by the name ``etcd``; the
environment variable ``AUTELLIX_ETCD`` names another one, to try other versions.
"""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from onenode.binaries import binary
from support.ports import free_ports

_START_SECONDS = 60
_NAMES = ("one", "two", "three")


@dataclass
class EtcdMember:
    """One etcd process."""

    folder: Path
    name: str
    client_port: int
    peer_port: int
    initial_cluster: str
    flags: Sequence[str]
    tls: Path | None = None
    """Folder with the certificates ``ca``, ``etcd`` and ``client``: clients have to show one. None: no TLS."""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def endpoint(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.client_port}"

    def start(self) -> None:
        """Starts the process on the data it left, if any. Does not wait until it serves."""
        assert self.process is None, f"etcd {self.name} runs already"
        program = self.folder / "etcd"
        if not program.exists():
            program.symlink_to(os.environ.get("AUTELLIX_ETCD") or binary("kube"))
        client, peer = self.client_url, f"http://127.0.0.1:{self.peer_port}"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(program),
                    f"--name={self.name}",
                    f"--data-dir={self.data}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster={self.initial_cluster}",
                    # Tests kill processes, not machines: what was written survives without a sync.
                    "--unsafe-no-fsync",
                    *self._tls_flags(),
                    *self.flags,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def client_url(self) -> str:
        """Where clients are served."""
        return f"{'https' if self.tls else 'http'}://{self.endpoint}"

    def _tls_flags(self) -> list[str]:
        if self.tls is None:
            return []
        files = {"cert-file": "etcd.crt", "key-file": "etcd.key", "trusted-ca-file": "ca.crt"}
        return ["--client-cert-auth", *(f"--{flag}={self.tls / name}" for flag, name in files.items())]

    def tls_context(self) -> ssl.SSLContext | None:
        """For requests of tests."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(cafile=self.tls / "ca.crt")
        context.load_cert_chain(self.tls / "client.crt", self.tls / "client.key")
        return context

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    def kill(self) -> None:
        """SIGKILL: what a crash is."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stops the process without ending it: connections stay open and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on after ``pause``."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def healthy(self) -> bool:
        """It serves, and the cluster has a leader."""
        try:
            with urllib.request.urlopen(f"{self.client_url}/health", timeout=2, context=self.tls_context()) as answer:
                return bool(json.loads(answer.read())["health"] == "true")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def log_tail(self) -> str:
        """The last lines it logged."""
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-15:])


@dataclass
class Etcd:
    """A cluster of one or three members."""

    members: list[EtcdMember]
    token: str = ""
    """For ``call``, once users have to sign in."""

    @property
    def url(self) -> str:
        """As ``open_table`` takes it."""
        return ("etcds://" if self.members[0].tls else "etcd://") + ",".join(member.endpoint for member in self.members)

    @property
    def only(self) -> EtcdMember:
        """The member of a cluster of one."""
        (member,) = self.members
        return member

    def start(self) -> None:
        """Starts all members that do not run, and returns when all serve. Raises AssertionError with their log."""
        for member in self.members:
            if member.process is None:
                member.start()
        deadline = time.monotonic() + _START_SECONDS
        while not all(member.healthy() for member in self.members):
            for member in self.members:
                ended = member.process is None or member.process.poll() is not None
                assert not ended, f"etcd {member.name} ended:\n{member.log_tail()}"
                assert time.monotonic() < deadline, f"etcd does not serve:\n{member.log_tail()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to all."""
        for member in self.members:
            member.kill()

    def restart(self) -> None:
        """Killed and started again on the same data."""
        self.kill()
        self.start()

    def wipe(self) -> None:
        """Killed, all data lost, started again."""
        self.kill()
        for member in self.members:
            shutil.rmtree(member.data)
        self.start()

    def save(self, folder: Path) -> None:
        """Copies the data of a stopped cluster of one."""
        shutil.copytree(self.only.data, folder)

    def restore(self, folder: Path) -> None:
        """Killed, the data replaced by a copy from ``save``, started again."""
        self.kill()
        shutil.rmtree(self.only.data)
        shutil.copytree(folder, self.only.data)
        self.start()

    def call(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """One request to the JSON gateway of the first member, for what only tests do. Bytes are base64."""
        first = self.members[0]
        headers = {"Authorization": self.token} if self.token else {}
        request = urllib.request.Request(first.client_url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10, context=first.tls_context()) as answer:
            found = json.loads(answer.read())
        assert isinstance(found, dict)
        return found

    def newest_revision(self, prefix: str) -> int:
        """The highest revision that wrote a key which is still there under the prefix."""
        start = prefix.encode()
        end = start[:-1] + bytes([start[-1] + 1])
        found = self.call(
            "/v3/kv/range",
            {
                "key": base64.b64encode(start).decode(),
                "range_end": base64.b64encode(end).decode(),
                "sort_order": "DESCEND",
                "sort_target": "MOD",
                "limit": 1,
                "keys_only": True,
            },
        )
        kvs = found.get("kvs", [])
        assert isinstance(kvs, list)
        return int(kvs[0]["mod_revision"]) if kvs else 0

    def key(self, key: str) -> dict[str, str]:
        """A key as the JSON gateway shows it; its value is base64."""
        kvs = self.call("/v3/kv/range", {"key": base64.b64encode(key.encode()).decode()}).get("kvs", [])
        assert isinstance(kvs, list)
        assert kvs, f"no key {key}"
        return dict(kvs[0])

    def revision(self) -> int:
        """The store's present revision."""
        header = self.call("/v3/kv/range", {"key": base64.b64encode(b"none").decode()})["header"]
        assert isinstance(header, dict)
        return int(header["revision"])

    def compact(self, revision: int) -> None:
        """Forgets all revisions before this one."""
        self.call("/v3/kv/compaction", {"revision": revision, "physical": True})


@contextmanager
def running_etcd(
    folder: Path, *, members: int = 1, flags: Sequence[str] = (), tls: Path | None = None
) -> Iterator[Etcd]:
    """An etcd of so many members (1 or 3), data and logs in ``folder``, ended afterwards whatever happens."""
    ports = free_ports(2 * members)
    names = _NAMES[:members]
    peers = ports[members:]
    initial = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, peers, strict=True))
    cluster = Etcd([])
    for name, client, peer in zip(names, ports, peers, strict=False):
        os.makedirs(folder / name)
        cluster.members.append(EtcdMember(folder / name, name, client, peer, initial, tuple(flags), tls))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
