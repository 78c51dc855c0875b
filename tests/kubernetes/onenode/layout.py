"""Where a lab keeps what, and the addresses inside of it. Nothing here touches the machine."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from onenode.cache import cache_folder
from onenode.errors import OnenodeError

NODE_NAME = "node0"
# Every lab has these addresses: each is alone in its network namespace, so two labs never meet.
NODE_ADDRESS = "172.30.0.2"
NODE_NETWORK = "172.30.0.2/24"
POD_NETWORK = "10.244.0.0/16"
NODE_POD_NETWORK = "10.244.0.0/24"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
API_PORT = 6443
CLUSTER_DOMAIN = "cluster.local"

# Folders of the machine that parts insist on. Inside a lab the lab's own folder is mounted over each.
BORROWED_FOLDERS = {"/var/lib/cni": "cni", "/var/lib/kubelet": "kubelet", "/tmp/hostpath_pv": "volumes"}

_LONGEST_SOCKET_PATH = 107  # bytes; the kernel's limit for the address of a Unix socket


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a lab, all below ``root``."""

    root: Path

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            raise OnenodeError(f"the folder of a lab must be absolute, not {self.root}")
        if len(str(self.containerd_socket).encode()) > _LONGEST_SOCKET_PATH:
            raise OnenodeError(
                f"the path {self.root} is too long: a socket in it would pass {_LONGEST_SOCKET_PATH} bytes"
            )

    @property
    def identity(self) -> str:
        """A name that no lab in another folder has."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:12]

    @property
    def process_mark(self) -> str:
        """An argument by which the lab's first process is found, whatever became of the files."""
        return f"autellix-lab:{self.root}"

    @property
    def cgroup(self) -> str:
        """The lab's group in each hierarchy of control groups."""
        return f"autellix-lab-{self.identity}"

    @property
    def ownership_mark(self) -> Path:
        """A file that says the folder is a lab, so that a wrong path never costs anyone a folder."""
        return self.root / ".autellix-lab"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that has to exist before the parts start."""
        return (
            self.programs,
            self.pki,
            self.configuration,
            self.cni_configuration,
            self.logs,
            self.process_ids,
            self.root / "sysctl",
            self.client_cache,
            *(self.root / name for name in BORROWED_FOLDERS.values()),
        )

    @property
    def programs(self) -> Path:
        """Links to the programs, under the names they are called by."""
        return self.root / "bin"

    @property
    def pki(self) -> Path:
        """Keys, certificates and the kubeconfigs made from them."""
        return self.root / "pki"

    @property
    def configuration(self) -> Path:
        """Configuration files of the parts."""
        return self.root / "etc"

    @property
    def cni_configuration(self) -> Path:
        """Configuration of the pods' network."""
        return self.configuration / "cni"

    @property
    def logs(self) -> Path:
        """What the parts and the pods print; inside the lab this is /var/log."""
        return self.root / "log"

    @property
    def process_ids(self) -> Path:
        """One file for each part that was started, holding its process id inside the lab."""
        return self.root / "pids"

    @property
    def client_cache(self) -> Path:
        """Where kubectl and helm keep what they would otherwise keep in the home folder."""
        return self.root / "client"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd answers."""
        return self.root / "containerd.sock"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of one of the lab's users."""
        return self.pki / f"{user}.kubeconfig"

    def log(self, part: str) -> Path:
        """The log of one part."""
        return self.logs / f"{part}.log"


def default_lab_folder(name: str) -> Path:
    """Where the lab called ``name`` lives unless a path is given."""
    return cache_folder() / "labs" / name
