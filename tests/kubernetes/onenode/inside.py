"""What runs inside a lab's namespaces: the network, the mounts, and the start of the parts.

``python3 -m onenode.inside FOLDER {up [IMAGE.tar ...] | import IMAGE.tar | start PART}``, run by nsenter.
"""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from onenode import parts
from onenode.configuration import DNS_READY_PORT, KERNEL_SETTINGS
from onenode.errors import OnenodeError
from onenode.layout import API_PORT, BORROWED_FOLDERS, NODE_ADDRESS, NODE_NAME, NODE_NETWORK, SERVICE_NETWORK, Layout
from onenode.manifests import cluster_objects
from onenode.policies import QUEUES, queue_is_read, queue_rules
from onenode.progress import say
from onenode.waiting import wait_until

_LAST_LINES = 5


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; errors go to standard error as one message."""
    folder, command, *rest = arguments
    layout = Layout(Path(folder))
    try:
        if command == "up":
            up(layout, [Path(image) for image in rest])
        elif command == "import":
            import_image(layout, Path(rest[0]))
        else:
            start_part(layout, rest[0])
    except OnenodeError as error:
        say(str(error))
        return 1
    return 0


def up(layout: Layout, images: Sequence[Path]) -> None:
    """Brings up the whole cluster. Returns when pods can be created and names resolve."""
    started = time.monotonic()

    def tell(what: str) -> None:
        say(f"{time.monotonic() - started:5.1f} s  {what}")

    set_up_mounts(layout)
    set_up_network(layout)
    for part in ("containerd", "etcd", "kube-apiserver"):
        start_part(layout, part)
    api = ApiServer(layout)
    _await(layout, "containerd", lambda: _listens(layout.containerd_socket))
    for image in images:
        import_image(layout, image)
    tell(f"{len(images)} images imported")
    _await(layout, "kube-apiserver", lambda: api.get("/readyz") is not None, seconds=180)
    tell("API server ready")
    _run(
        layout,
        "kubectl",
        "apply",
        f"--kubeconfig={layout.kubeconfig()}",
        "-f",
        "-",
        stdin=json.dumps(cluster_objects()),
    )
    for part in ("kube-controller-manager", "kube-scheduler", "policies", "kubelet", "kube-proxy", "coredns"):
        start_part(layout, part)
    _await(layout, "kubelet", lambda: _is_ready(api.get(f"/api/v1/nodes/{NODE_NAME}")), seconds=120)
    tell("node ready")
    account = "/api/v1/namespaces/default/serviceaccounts/default"  # without it pods are refused
    _await(layout, "kube-controller-manager", lambda: api.get(account) is not None)
    _await(layout, "coredns", _dns_is_ready)
    _await(layout, "policies", lambda: queue_is_read(Path(QUEUES).read_text()))
    tell("names resolve, pods can be created")


def set_up_mounts(layout: Layout) -> None:
    """Private places of this lab: /run, the resolver's files, folders of the parts, and kernel settings."""
    _run(layout, "mount", "--make-rshared", "/")  # volumes with propagation; stays inside this namespace
    _run(layout, "mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("resolv.conf", "hosts"):
        target = Path("/etc", name).resolve()
        if not target.exists():  # on many machines a link into /run, which is empty now
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _bind(layout, layout.configuration / name, target)
    for borrowed, own in BORROWED_FOLDERS.items():
        _bind(layout, layout.root / own, Path(borrowed))
    _bind(layout, layout.logs, Path("/var/log"))
    for setting, value in KERNEL_SETTINGS.items():
        file = layout.root / "sysctl" / setting.replace("/", ".")
        file.write_text(f"{value}\n")
        _bind(layout, file, Path("/proc/sys") / setting)


def set_up_network(layout: Layout) -> None:
    """An address, and no way out: what wants to leave fails at once with "No route to host"."""
    for command in (
        "link set lo up",
        "link add eth0 type bridge",  # without ports
        f"address add {NODE_NETWORK} dev eth0",
        "link set eth0 up",
        f"route add {SERVICE_NETWORK} dev eth0",  # a route is looked up before the Service's address is translated
        "route add unreachable default",
    ):
        _run(layout, "ip", *command.split())
    for rule in queue_rules():
        _run(layout, "iptables", *rule)


def start_part(layout: Layout, part: str) -> None:
    """Starts one part in the background; its process id is kept for those who want to stop it."""
    with layout.log(part).open("ab") as log:
        process = subprocess.Popen(
            parts.commands(layout)[part],
            cwd=layout.root,
            env=parts.environment(layout),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (layout.process_ids / part).write_text(f"{process.pid}\n")


def import_image(layout: Layout, image: Path) -> None:
    """Gives an image archive to containerd."""
    _run(layout, "ctr", f"--address={layout.containerd_socket}", "--namespace=k8s.io", "images", "import", str(image))


class ApiServer:
    """Just enough of a client to see how far the cluster has come."""

    def __init__(self, layout: Layout) -> None:
        self._tls = ssl.create_default_context(cafile=layout.pki / "ca.crt")
        self._tls.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")

    def get(self, path: str) -> Any | None:
        """The document at a path, or None when the server says that it is not there or not ready."""
        connection = http.client.HTTPSConnection(NODE_ADDRESS, API_PORT, timeout=5, context=self._tls)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            return None
        return json.loads(text) if text.startswith("{") else text


def _is_ready(node: Any | None) -> bool:
    conditions = node["status"].get("conditions", []) if node else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _dns_is_ready() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", DNS_READY_PORT, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    return True


def _await(layout: Layout, part: str, condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Waits for a part, and says what it last logged when it does not get ready or ends."""
    process = Path("/proc", (layout.process_ids / part).read_text().strip())

    def holds() -> bool:
        if not process.exists() or "\nState:\tZ" in (process / "status").read_text():
            raise OnenodeError(f"{part} has ended")
        return condition()

    try:
        wait_until(holds, f"{part} ready", seconds=seconds)
    except OnenodeError as error:
        lines = layout.log(part).read_text(errors="replace").splitlines()[-_LAST_LINES:]
        raise OnenodeError(
            "\n".join([f"{error}; the end of {layout.log(part)}:", *(f"  {line}" for line in lines)])
        ) from error


def _bind(layout: Layout, source: Path, target: Path) -> None:
    _run(layout, "mount", "--bind", str(source), str(target))


def _run(layout: Layout, *command: str, stdin: str | None = None) -> None:
    result = subprocess.run(command, env=parts.environment(layout), input=stdin, capture_output=True, text=True)
    if result.returncode:
        raise OnenodeError(f"{' '.join(command)}: {result.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
