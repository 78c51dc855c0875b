"""Who reaches whom on a Kubernetes, tried from inside of pods: only there does a policy of the network rule."""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onenode.target import Target
from support.installation import OPERATOR_NAMESPACE, Installation
from support.labs import restricted_pod
from support.ports import CONTROLLER_PORT, ENGINE_PORT

CLIENT, PROMETHEUS, STRANGER = "client", "prometheus", "stranger"
#: The policy of a cluster whose clients are the pod ``client`` of its namespace and the test of the chart, and whose
#: metrics are read by the pod ``prometheus``.
NETWORK_POLICY: dict[str, Any] = {
    "mode": "Enabled",
    "clientsFrom": [
        {"podLabels": {"app": CLIENT}},
        {
            "namespaceLabels": {"kubernetes.io/metadata.name": OPERATOR_NAMESPACE},
            "podLabels": {"app.kubernetes.io/name": "autellix-test"},
        },
    ],
    "metricsFrom": [{"podLabels": {"app": PROMETHEUS}}],
}
#: Time for a second packet: the first one is lost while the network does not know the sender yet.
_CONNECT_SECONDS = 2.5
_WAIT = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
_CONNECT = f"""
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(place):
    try:
        socket.create_connection(place, {_CONNECT_SECONDS}).close()
    except TimeoutError:
        return False
    return True
places = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(places)) as tries:
    answers = tries.map(reached, map(tuple, places.values()))
    print(json.dumps([name for name, answer in zip(places, answers) if answer]))
"""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A pod with a Python: ``pod`` is its name, or ``deploy/NAME`` for any of a Deployment."""

    namespace: str
    pod: str


def idle_pod(name: str, namespace: str, image: str) -> dict[str, Any]:
    """A pod to visit others from; it does nothing by itself and is labelled ``app=name``."""
    pod = restricted_pod(name, image, ["-c", _WAIT], command=["python3"])
    return pod | {"metadata": {**pod["metadata"], "namespace": namespace}}


def places(installation: Installation, cluster: str, namespace: str) -> dict[str, tuple[str, int]]:
    """All that listens in a cluster, as host and port: its Service, and the first pod of each part by name."""

    def address(component: str) -> str:
        pods = installation.pods(cluster, namespace, component)
        return str(min(pods, key=lambda pod: pod["metadata"]["name"])["status"]["podIP"])

    etcd = address("etcd")
    return {
        "endpoint": (f"{cluster}.{namespace}.svc", 80),
        "controller": (address("controller"), CONTROLLER_PORT),
        "engine": (address("engine"), ENGINE_PORT),
        "etcd for clients": (etcd, 2379),
        "etcd for members": (etcd, 2380),
        "metrics of etcd": (etcd, 2381),
    }


def reached(target: Target, visitor: Visitor, among: Mapping[str, tuple[str, int]]) -> set[str]:
    """Those places to which a visitor can open a connection.

    Raises OnenodeError if a place refuses or is not found: then it is no policy that keeps the visitor out.
    """
    where = ("-n", visitor.namespace, visitor.pod)
    said = target.kubectl("exec", *where, "--", "python3", "-c", _CONNECT, json.dumps(among), seconds=60)
    return set(json.loads(said))


def reached_by_all(
    target: Target, visitors: Mapping[str, Visitor], among: Mapping[str, tuple[str, int]]
) -> dict[str, set[str]]:
    """The same for several visitors at once, by their names."""
    with ThreadPoolExecutor(len(visitors)) as tries:
        found: Iterable[set[str]] = tries.map(lambda visitor: reached(target, visitor, among), visitors.values())
        return dict(zip(visitors, found, strict=True))
