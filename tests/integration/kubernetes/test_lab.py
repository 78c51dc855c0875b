"""A real lab: pods, Services, claims, parts that die, a neighbour, a crash, and what is left of it all: nothing."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from onenode.binaries import binary
from onenode.errors import OnenodeError
from onenode.images import IMAGES, REPOSITORY
from onenode.lab import Lab
from onenode.manifests import as_list, node_mounts, node_root, node_volume
from onenode.waiting import wait_until
from support.labs import kernel_settings, restricted_pod, traces

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

PACKAGE_FOLDER = Path(__file__).parents[2] / "kubernetes"
NAMESPACE = "things"


def python(lab: Lab, script: str, *, names: bool = False) -> str:
    """What a Python in the lab's network prints."""
    result = lab.run([sys.executable, "-c", script], names=names, seconds=60)
    return result.stdout.strip() if result.returncode == 0 else f"status {result.returncode}: {result.stderr[-300:]}"


def get(url: str) -> str:
    return f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=5).read().decode())"


def etcd_pod(
    name: str, volumes: Sequence[dict[str, Any]], *, command: Sequence[str] = ("etcd",), mounts: Sequence[Any] = ()
) -> dict[str, Any]:
    """A pod that serves etcd on port 2379 with its data on the volume ``data``."""
    listen = "http://0.0.0.0:2379"
    arguments = ["--data-dir=/data/etcd", f"--listen-client-urls={listen}", f"--advertise-client-urls={listen}"]
    container = {
        "readinessProbe": {"httpGet": {"path": "/health", "port": 2379}, "periodSeconds": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, *mounts],
    }
    return restricted_pod(name, IMAGES["etcd"], arguments, command=command, container=container, volumes=volumes)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="axlab-", dir="/tmp") as name:
        yield Path(name) / "lab"


@pytest.fixture(scope="module")
def store(lab: Lab) -> Lab:
    """The lab with a pod ``store`` on a claim, behind a Service of the same name."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "store"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "store"},
        "spec": {"selector": {"app": "store"}, "ports": [{"port": 80, "targetPort": 2379}]},
    }
    pod = etcd_pod("store", [{"name": "data", "persistentVolumeClaim": {"claimName": "store"}}])
    lab.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(as_list([claim, service, pod])))
    lab.kubectl("wait", "-n", NAMESPACE, "pod/store", "--for=condition=Ready", "--timeout=90s")
    return lab


@pytest.fixture(scope="module")
def guest(store: Lab) -> str:
    """The path of a program of the node in the pod ``guest``, which runs it from there."""
    program = binary("kube")
    volumes = [{"name": "data", "emptyDir": {}}, node_volume()]
    pod = etcd_pod("guest", volumes, command=[str(program), "etcd"], mounts=node_mounts([program.parent]))
    store.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(as_list(node_root(NAMESPACE))))
    store.kubectl("wait", "-n", NAMESPACE, "pvc/node-root", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
    store.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))
    store.kubectl("wait", "-n", NAMESPACE, "pod/guest", "--for=condition=Ready", "--timeout=90s")
    return str(program)


def test_a_pod_of_an_ordinary_user_writes_to_its_claim_and_answers_behind_its_service(store: Lab) -> None:
    address = store.kubectl("get", "-n", NAMESPACE, "service/store", "-o", "jsonpath={.spec.clusterIP}")
    wait_until(lambda: "true" in python(store, get(f"http://{address}/health")), "the Service's address", seconds=30)
    assert "true" in python(store, get(f"http://store.{NAMESPACE}.svc.cluster.local/health"), names=True)


def test_the_shell_that_make_gives_has_kubectl_and_knows_the_names_of_services(store: Lab) -> None:
    typed = f"kubectl get namespaces -o name; getent hosts store.{NAMESPACE}.svc.cluster.local"
    make = ["make", "--no-print-directory", "kubernetes-shell", f"LAB={store.layout.root}", f"PYTHON={sys.executable}"]
    environment = os.environ | {"SHELL": "/bin/bash"}
    done = subprocess.run(
        make, cwd=REPOSITORY, env=environment, input=typed, capture_output=True, text=True, timeout=60
    )
    assert f"namespace/{NAMESPACE}\n" in done.stdout, done.stderr
    assert re.search(rf"^10\.96\.\S+ +store\.{NAMESPACE}\.svc\.cluster\.local$", done.stdout, re.MULTILINE)


def test_nothing_leaves_the_lab_and_unknown_names_fail_at_once(lab: Lab) -> None:
    connect = (
        "import socket\ntry: socket.create_connection({0!r}, timeout=20)\nexcept OSError as error: print(error.errno)"
    )
    # Answers: what nobody answers ends with TimeoutError, and with EAI_AGAIN for names.
    assert python(lab, connect.format(("192.0.2.1", 80))) == str(errno.EHOSTUNREACH)
    assert python(lab, connect.format(("nowhere.example", 80)), names=True) == str(socket.EAI_NONAME)


def test_a_process_can_move_into_the_labs_network_by_itself(store: Lab) -> None:
    script = (
        "import sys; from pathlib import Path; from onenode.lab import Lab\n"
        f"Lab(Path({str(store.layout.root)!r})).enter_network()\n"
        "import socket; print(socket.create_connection(('172.30.0.2', 6443), timeout=5).getpeername()[0])"
    )
    environment = {"PYTHONPATH": str(PACKAGE_FOLDER), "PATH": os.environ["PATH"]}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "172.30.0.2", result.stderr


def test_a_restricted_pod_runs_a_program_of_the_node_read_only(store: Lab, guest: str) -> None:
    mounts = store.kubectl("exec", "-n", NAMESPACE, "guest", "--", guest, "kubectl", "version", "--client")
    assert "v1.35" in mounts
    bad = {"name": "root", "hostPath": {"path": "/"}}
    refused = etcd_pod("refused", [{"name": "data", "emptyDir": {}}, bad])
    with pytest.raises(OnenodeError, match="violates PodSecurity"):
        store.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(refused))


def test_a_network_policy_keeps_pods_out_and_lets_the_node_in(store: Lab, guest: str) -> None:
    address = store.kubectl("get", "-n", NAMESPACE, "pod/store", "-o", "jsonpath={.status.podIP}")
    # A client for any server: kubectl shows what is at a path.
    ask = [guest, "kubectl", "get", "--raw", "/health", f"--server=http://{address}:2379", "--request-timeout=3s"]

    def reached() -> bool:
        return store.run(["kubectl", "exec", "-n", NAMESPACE, "guest", "--", *ask]).returncode == 0

    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": NAMESPACE},
        "spec": {"podSelector": {"matchLabels": {"app": "store"}}, "policyTypes": ["Ingress"]},
    }
    wait_until(reached, "a way in while there is no policy", seconds=30)
    store.kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    try:
        wait_until(lambda: not reached(), "the policy to be enforced", seconds=30)
        assert "true" in python(store, get(f"http://{address}:2379/health"))
        store.kubectl("wait", "-n", NAMESPACE, "pod/store", "--for=condition=Ready", "--timeout=60s")

        store.signal("policies", signal.SIGKILL)
        store.kubectl("delete", "-n", NAMESPACE, "networkpolicy/closed")
        assert not reached(), "nobody judges packets, so none pass"
        store.start("policies")
        wait_until(reached, "packets judged again", seconds=30)
    finally:
        store.kubectl("delete", "-n", NAMESPACE, "networkpolicy/closed", "--ignore-not-found")


def test_the_api_server_and_the_kubelet_come_back_and_pods_go_on(store: Lab) -> None:
    def started() -> str:
        path = "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}"
        return store.kubectl("get", "-n", NAMESPACE, "pod/store", "-o", path)

    before = started()

    def ready() -> bool:
        return store.run(["kubectl", "get", "--raw", "/readyz"]).returncode == 0

    store.restart("kube-apiserver")
    wait_until(ready, "the API server", seconds=90)
    store.restart("kubelet")
    # The node was Ready all the time. Until the kubelet knows its pods again it says that there are none.
    wait_until(lambda: pods_of_the_kubelet(store) >= pods_of_the_node(store), "the kubelet", seconds=90)
    store.kubectl("wait", "node/node0", "--for=condition=Ready", "--timeout=90s")
    assert started() == before


def pods_of_the_kubelet(lab: Lab) -> set[str]:
    """The pods that the kubelet knows, by their uids; none while it does not answer."""
    said = lab.run(["kubectl", "get", "--raw", "/api/v1/nodes/node0/proxy/pods"])
    return uids(said.stdout) if said.returncode == 0 else set()


def pods_of_the_node(lab: Lab) -> set[str]:
    """The same as the API server has them."""
    return uids(lab.kubectl("get", "pods", "--all-namespaces", "-o", "json"))


def uids(pods: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in json.loads(pods)["items"] or ()}


def test_a_stopped_part_goes_on_when_it_is_told_to(lab: Lab) -> None:
    lab.signal("kube-scheduler", signal.SIGSTOP)
    lab.kubectl("create", "configmap", "-n", NAMESPACE, "other", "--from-literal=a=b")
    lab.signal("kube-scheduler", signal.SIGCONT)
    with pytest.raises(OnenodeError, match="no part is called scheduler"):
        lab.signal("scheduler", signal.SIGSTOP)


def test_a_second_lab_does_not_meet_the_first(store: Lab, folder: Path) -> None:
    other = Lab(folder)
    try:
        other.up()
        assert NAMESPACE not in other.kubectl("get", "namespaces", "-o", "name")
        assert f"namespace/{NAMESPACE}" in store.kubectl("get", "namespaces", "-o", "name")
        assert (store.layout.pki / "ca.crt").read_bytes() != (other.layout.pki / "ca.crt").read_bytes()
    finally:
        other.down()
    assert traces(other) == []
    assert store.running
    assert (
        "true" in python(store, get("http://10.244.0.2:2379/health"))
        or store.kubectl("get", "--raw", "/readyz") == "ok"
    )


def test_settings_of_the_machine_are_the_same_while_labs_run(store: Lab, settings_before: dict[str, str]) -> None:
    now = kernel_settings()
    # Those of network interfaces and modules come and go with what else runs on the machine.
    stayed = settings_before.keys() & now.keys()
    assert {name: now[name] for name in stayed if now[name] != settings_before[name]} == {}


def test_a_start_that_is_killed_half_way_leaves_what_down_removes(folder: Path) -> None:
    lab = Lab(folder)
    command = [sys.executable, "-m", "onenode", "up", "--lab", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:
        wait_until(lambda: (lab.layout.process_ids / "kube-apiserver").exists(), "half of a start", seconds=120)
        starting.kill()
    assert lab.running
    lab.down()
    assert traces(lab) == []
    lab.down()


def test_a_lab_whose_folder_was_removed_while_it_ran_still_ends(folder: Path) -> None:
    lab = Lab(folder)
    lab.up()
    subprocess.run(["rm", "-rf", str(folder)], check=False)
    lab.down()
    assert traces(lab) == []
