"""A namespace on a real API server with the operator in it, under the rights that the chart gives it and no others."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import yaml

from onenode.binaries import binary
from support.apiserver import ApiError, Client
from support.chart import render
from support.ports import free_ports

Object = dict[str, Any]
Answer = TypeVar("Answer")

_GROUPS = {
    "autellixclusters": "/apis/autellix.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "servicemonitors": "/apis/monitoring.coreos.com/v1",
    "podmonitors": "/apis/monitoring.coreos.com/v1",
    "prometheusrules": "/apis/monitoring.coreos.com/v1",
}
#: Kinds that a cluster consists of.
KINDS = (
    "deployments",
    "replicasets",
    "statefulsets",
    "roles",
    "rolebindings",
    "poddisruptionbudgets",
    "networkpolicies",
    "services",
    "serviceaccounts",
    "secrets",
    "pods",
    "persistentvolumeclaims",
)
#: The kinds of the Prometheus Operator.
MONITORING = {
    "servicemonitors": "ServiceMonitor",
    "podmonitors": "PodMonitor",
    "prometheusrules": "PrometheusRule",
}
_LABEL = "autellix.dev/cluster"
_IMAGES = ("--engine-image=engine:test", "--controller-image=controller:test", "--etcd-image=etcd:test")


def eventually(question: Callable[[], Answer], what: str, seconds: float = 90) -> Answer:
    """Asks until the answer is true, and gives it. A failed assertion, a missing object or no answer counts as no."""
    deadline = time.monotonic() + seconds
    while True:
        problem: object = None
        try:
            if answer := question():
                return answer
        except (AssertionError, ApiError, OSError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}" + (f" ({problem})" if problem else ""))
        time.sleep(0.1)


@dataclass
class Bench:
    """One namespace. ``admin`` may do everything; the operator has what the chart gives it."""

    admin: Client
    namespace: str
    folder: Path
    pod_address: str = "127.0.0.1"
    """Where pods that `run_pods` runs are said to be."""

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        """Path of a collection, an object or a subresource."""
        parts = [_GROUPS.get(plural, "/api/v1"), "namespaces", self.namespace, plural, name, subresource]
        return "/".join(part for part in parts if part)

    def get(self, plural: str, name: str) -> Object:
        """A live object. Raises ApiError."""
        return self.admin.request("GET", self.path(plural, name))

    def find(self, plural: str, cluster: str | None = None) -> list[Object]:
        """Live objects, of one cluster if it is given."""
        query = f"?labelSelector={_LABEL}%3D{cluster}" if cluster else ""
        items: list[Object] = self.admin.request("GET", self.path(plural) + query)["items"]
        return items

    def create(self, plural: str, manifest: Object) -> Object:
        """Makes an object."""
        return self.admin.request("POST", self.path(plural), manifest)

    def patch(self, plural: str, name: str, change: Object, subresource: str = "") -> Object:
        """Merges a change into an object."""
        path = self.path(plural, name, subresource)
        return self.admin.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, plural: str, name: str) -> None:
        """Removes an object."""
        self.admin.request("DELETE", self.path(plural, name))

    def gone(self, plural: str, name: str) -> bool:
        """Whether there is no such object."""
        try:
            self.get(plural, name)
        except ApiError as error:
            return error.status == 404
        return False

    def serves(self, plural: str) -> bool:
        """Whether the API server has this kind of object."""
        try:
            return "items" in self.admin.request("GET", self.path(plural))
        except ApiError as error:
            if error.status == 404:
                return False
            raise

    def install_monitoring_api(self) -> None:
        """Installs as much of the Prometheus Operator's API as decides whether it is there."""
        for plural, kind in MONITORING.items():
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
            spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]}
            name = f"{plural}.monitoring.coreos.com"
            definition: Object = {"metadata": {"name": name}, "spec": spec}
            definition |= {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=test&force=true"
            self.admin.request("PATCH", path, definition, "application/apply-patch+yaml")
        eventually(lambda: all(self.serves(plural) for plural in MONITORING), "the API is served")

    def make_cluster(self, name: str = "demo", **spec: Any) -> Object:
        """Makes an AutellixCluster."""
        return self.create("autellixclusters", cluster(name, **spec))

    def condition(self, name: str, type_: str) -> Object:
        """A condition of a cluster that speaks of its newest generation. Fails if there is none."""
        live = self.get("autellixclusters", name)
        found = [each for each in live.get("status", {}).get("conditions", []) if each["type"] == type_]
        assert found, f"no condition {type_}"
        assert found[0]["observedGeneration"] == live["metadata"]["generation"], "of an older generation"
        condition: Object = found[0]
        return condition

    def wait_for(self, name: str, type_: str, reason: str, seconds: float = 30) -> Object:
        """Waits until a condition has a reason."""

        def has_reason() -> Object | None:
            condition = self.condition(name, type_)
            assert condition["reason"] == reason, f"{condition['reason']}: {condition['message']}"
            return condition

        return eventually(has_reason, f"{type_} of {name} is {reason}", seconds) or {}

    def children(self, cluster: str) -> dict[tuple[str, str], Object]:
        """All that a cluster consists of, by kind and name."""
        found = {}
        for plural in KINDS:
            for item in self.find(plural, cluster):
                found[plural, item["metadata"]["name"]] = item
        return found

    def run_pods(self, cluster: str) -> None:
        """Does the kubelet's part for all pods of a cluster that now exist: they run and are ready."""
        for pod in self.find("pods", cluster):
            if "deletionTimestamp" in pod["metadata"]:
                # Without a kubelet nobody else ends it.
                self.admin.request("DELETE", self.path("pods", pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
                continue
            if pod.get("status", {}).get("phase") == "Running":
                continue
            # A Deployment counts from then until its pods have settled: that time is over, and no test waits for it.
            since = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions = [
                {"type": type_, "status": "True", "lastTransitionTime": since}
                for type_ in ("PodScheduled", "ContainersReady", "Ready")
            ]
            status = {"phase": "Running", "podIP": self.pod_address, "conditions": conditions}
            self.patch("pods", pod["metadata"]["name"], {"status": status}, "status")

    def with_kubelet(self, cluster: str, question: Callable[[], Answer], what: str, seconds: float = 60) -> Answer:
        """`eventually`, while the pods of a cluster run and end as they would with a kubelet."""

        def ask() -> Answer:
            self.run_pods(cluster)
            return question()

        return eventually(ask, what, seconds)

    def make_ready(self, name: str = "demo") -> None:
        """Waits until a cluster is ready, while its pods run."""
        self.with_kubelet(name, lambda: self.condition(name, "Ready")["status"] == "True", f"{name} is ready")

    def events(self, name: str) -> list[Object]:
        """The Events of a cluster, in the order in which they were made."""
        items = [item for item in self.find("events") if item["involvedObject"]["name"] == name]
        items = [item for item in items if item["involvedObject"]["kind"] == "AutellixCluster"]
        return sorted(items, key=lambda item: int(item["metadata"]["resourceVersion"]))

    @contextmanager
    def operator(self, *flags: str, namespaced: bool = True) -> Iterator["Operator"]:
        """Runs the operator as the chart's service account, as a process of its own."""
        environment = self._as_operator(namespaced)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        command = [sys.executable, "-m", "autellix_operator", "run", f"--http-listen={address}", "--log-level=debug"]
        command += [*_IMAGES, *([f"--watch-namespaces={self.namespace}"] if namespaced else [])]
        log = self.folder / f"operator-{self.namespace}.log"
        with log.open("ab") as output:
            process = subprocess.Popen([*command, *flags], env=environment, stdout=output, stderr=output)
            operator = Operator(process, f"http://{address}", log)
            try:
                eventually(operator.is_ready, f"the operator is ready; its log: {log.read_text()[-2000:]}")
                yield operator
            finally:
                operator.stop()

    def command(self, *arguments: str) -> tuple[int, str]:
        """Runs another command of the operator with its rights; gives exit status and what it printed."""
        command = [sys.executable, "-m", "autellix_operator", *arguments, *_IMAGES]
        done = subprocess.run(command, env=self._as_operator(True), capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def _as_operator(self, namespaced: bool) -> dict[str, str]:
        account = self.install_rights(namespaced)
        kubeconfig = self.folder / f"operator-{self.namespace}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(account.kubeconfig(self.namespace)))
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        return environment | {"KUBECONFIG": str(kubeconfig)}

    def rights(self, namespaced: bool = True) -> list[Object]:
        """The chart's service account, roles and bindings."""
        values = {"watchNamespaces": [self.namespace] if namespaced else [], "crds": {"enabled": False}}
        return [
            each for each in render(binary("helm"), values, namespace=self.namespace) if each["kind"] != "Deployment"
        ]

    def install_rights(self, namespaced: bool = True) -> Client:
        """Installs the chart's service account and rights, and gives a client that has them."""
        name = ""
        for manifest in self.rights(namespaced):
            kind = manifest["kind"]
            if kind == "ServiceAccount":
                name = manifest["metadata"]["name"]
            plural = f"{kind.lower()}s"
            prefix = f"/apis/rbac.authorization.k8s.io/v1/{plural}" if kind.startswith("Cluster") else self.path(plural)
            path = f"{prefix}/{manifest['metadata']['name']}?fieldManager=helm&force=true"
            self.admin.request("PATCH", path, manifest, "application/apply-patch+yaml")
        return self.admin.service_account(self.namespace, name)


@dataclass
class Operator:
    """The operator's process."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def is_ready(self) -> bool:
        """Whether its watches run. Fails if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the operator ended: {self.log.read_text()[-3000:]}")
        try:
            return self.read("/readyz") != ""
        except OSError:
            return False

    def read(self, path: str) -> str:
        """A page of its HTTP server."""
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = [line for line in self.read("/metrics").splitlines() if line.startswith((name + " ", name + "{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def stop(self) -> int:
        """Ends it as Kubernetes would; gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode


def cluster(name: str = "demo", **spec: Any) -> Object:
    """A manifest of an AutellixCluster."""
    return {
        "apiVersion": "autellix.dev/v1alpha1",
        "kind": "AutellixCluster",
        "metadata": {"name": name},
        "spec": {"model": {"name": "tiny"}, **spec},
    }
