"""The product on a Kubernetes, installed and used the way the README tells a user to: helm, kubectl, the Service."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from onenode.errors import OnenodeError
from onenode.manifests import NODE_ROOT, as_list, node_root
from onenode.target import Target
from onenode.waiting import wait_until
from support.ports import CONTROLLER_PORT
from support.prometheus import scrape

CHART = Path(__file__).resolve().parents[2] / "charts" / "autellix"
OPERATOR_NAMESPACE = "autellix-system"
RELEASE = "autellix"
#: A label of the namespaces that the demo and the tests made. In others nothing is ever changed or removed.
MARK = "autellix.dev/throw-away"
#: Each look costs half a second of a core: kubectl is a large program.
_POLL_SECONDS = 2.0
#: kube-proxy gathers changes of a Service for a second: in that time a connection may still reach who is gone.
_ROUTES_SETTLE_SECONDS = 1.5


def chart_values(image: Callable[[str], str]) -> dict[str, Any]:
    """The values of the chart that name the images; ``image`` gives the reference of each part."""
    defaults = {name: _reference(image(name)) for name in ("engine", "controller", "etcd")}
    return {"image": _reference(image("operator")), "defaultImages": defaults}


def _reference(image: str) -> dict[str, str]:
    repository, _, digest = image.partition("@")
    tag = "" if digest else "latest"
    if ":" in repository.rpartition("/")[2]:
        repository, _, tag = repository.rpartition(":")
    return {"registry": "", "repository": repository, "tag": tag, "digest": digest}


class Installation:
    """A release of the chart, and the clusters made with it."""

    def __init__(self, target: Target, *, lends_files: bool = True, watched: Sequence[str] = ()) -> None:
        """``lends_files``: engines get the node's files, so each namespace needs the claim for them.

        ``watched``: the operator is confined to these namespaces, as it has to be beside clusters of other people.
        """
        self.target = target
        self._lends_files = lends_files
        self._watched = watched

    def install(self, *, upgrade: bool = False, **values: Any) -> str:
        """Installs the chart and waits for the operator; gives what helm printed. With ``upgrade`` it may be there.

        ``values`` are values of the chart besides the images.
        """
        verb = ["upgrade", "--install"] if upgrade else ["install"]
        self._refuse_foreign()
        self._claim(OPERATOR_NAMESPACE)
        for name in self._watched:  # the chart puts the operator's rights there
            self.namespace(name)
        given = json.dumps(chart_values(self.target.image) | {"watchNamespaces": self._watched} | values)
        return self._helm(*verb, RELEASE, str(CHART), "--values", "-", "--wait", stdin=given)

    def rollback(self, revision: int) -> None:
        """Takes the release back to an earlier revision, and waits for the operator."""
        self._helm("rollback", RELEASE, str(revision), "--wait")

    def prove(self, endpoint: str, *, long_calls: int, long_tokens: int) -> str:
        """Lets ``helm test`` check a cluster that serves; gives what it printed. Raises OnenodeError if it fails."""
        self.install(upgrade=True, test={"endpoint": endpoint, "longCalls": long_calls, "longTokens": long_tokens})
        return self._helm("test", RELEASE)

    def uninstall(self) -> None:
        """Removes the chart; clusters and their definition stay, as its documentation says."""
        self._refuse_foreign()
        self._helm("uninstall", RELEASE, "--ignore-not-found", "--wait")

    def namespace(self, name: str) -> None:
        """Makes a namespace under restricted pod security, with the claim that lends the node's files to engines."""
        self._claim(name, {"pod-security.kubernetes.io/enforce": "restricted"})
        if self._lends_files:
            self.apply(as_list(node_root(name)))
            bound = "--for=jsonpath={.status.phase}=Bound"
            self.target.kubectl("wait", "-n", name, f"pvc/{NODE_ROOT}", bound, "--timeout=180s")

    def remove(self) -> None:
        """Takes all of it off a cluster that goes on without it, but for the definition of the API.

        Clusters go with the watched namespaces. Raises OnenodeError, with nothing removed, where one is not ours.
        """
        self._refuse_foreign()
        for name in self._watched:
            self.target.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")
        self.uninstall()

    def _claim(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        self._refuse(name)
        metadata = {"name": name, "labels": {MARK: "true", **(labels or {})}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def _refuse_foreign(self) -> None:
        """Raises OnenodeError if one of the namespaces that are worked in belongs to somebody else."""
        for name in (*self._watched, OPERATOR_NAMESPACE):
            self._refuse(name)

    def _refuse(self, name: str) -> None:
        found = self.get("namespace", name, name)
        if found is not None and MARK not in found["metadata"].get("labels", {}):
            raise OnenodeError(
                f"the namespace {name} is there, and neither the demo nor the tests made it, so nothing is done in it; "
                "use another cluster, or remove the namespace if nobody needs it"
            )

    def apply(self, resource: dict[str, Any]) -> None:
        """Applies an object as ``kubectl apply`` does."""
        self.target.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(resource))

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """An object, or None if there is none."""
        text = self.target.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def items(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind in a namespace."""
        text = self.target.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json")
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found

    def pods(self, cluster: str, namespace: str, component: str) -> list[dict[str, Any]]:
        """The pods of one component that are not on their way out."""
        selector = f"autellix.dev/cluster={cluster},app.kubernetes.io/component={component}"
        return [p for p in self.items("pods", namespace, selector) if not p["metadata"].get("deletionTimestamp")]

    def condition(self, cluster: str, namespace: str, kind: str = "Ready") -> dict[str, Any]:
        """A condition of a cluster, if it speaks of the newest generation; else one that is Unknown."""
        resource = self.get("axc", cluster, namespace) or {}
        generation = resource.get("metadata", {}).get("generation")
        for found in resource.get("status", {}).get("conditions", []):
            if found["type"] == kind and found["observedGeneration"] == generation:
                return dict(found)
        return {"type": kind, "status": "Unknown", "reason": "NotObserved", "message": ""}

    def wait_until(
        self, condition: Callable[[], bool], what: str, *, seconds: float, detail: Callable[[], str] = lambda: ""
    ) -> None:
        """Waits for a condition that asks Kubernetes. Raises OnenodeError that says what was awaited."""
        wait_until(condition, what, seconds=seconds, poll_seconds=_POLL_SECONDS, detail=detail)

    def wait_ready(self, cluster: str, namespace: str, *, seconds: float = 600) -> None:
        """Waits until the newest spec serves. Raises OnenodeError with what kubectl says about it."""
        self.wait_until(
            lambda: self.condition(cluster, namespace)["status"] == "True",
            f"AutellixCluster {namespace}/{cluster} Ready",
            seconds=seconds,
            detail=lambda: self.story(cluster, namespace),
        )

    def wait_settled(self, cluster: str, namespace: str, *, seconds: float = 600) -> None:
        """Waits until the newest spec serves and nothing is under way any more, as after something was broken.

        Ready alone says that enough pods serve. Here no pod is on its way out either, and no controller misses
        anything: neither an engine nor the process table. Raises OnenodeError with what is still under way.
        """
        self.wait_ready(cluster, namespace, seconds=seconds)
        self.wait_until(
            lambda: not self.under_way(cluster, namespace),
            f"AutellixCluster {namespace}/{cluster} settled",
            seconds=seconds,
            detail=lambda: "\n".join([*self.under_way(cluster, namespace), self.story(cluster, namespace)]),
        )

    def under_way(self, cluster: str, namespace: str) -> list[str]:
        """What has still to come to an end before a cluster is as its spec wants it; for people."""
        pods = self.items("pods", namespace, f"autellix.dev/cluster={cluster}")
        found = [f"{p['metadata']['name']} is leaving" for p in pods if p["metadata"].get("deletionTimestamp")]
        for pod in self.pods(cluster, namespace, "controller"):
            name = pod["metadata"]["name"]
            with self.target.reach(namespace, f"pod/{name}", CONTROLLER_PORT) as url:
                found += [f"{name}: {problem}" for problem in _problems(url)]
        return found

    def wait_answering(self, cluster: str, namespace: str, *, seconds: float = 180) -> None:
        """Waits until every new connection to the cluster's Service is answered, as after controllers were killed."""
        with self.endpoint(cluster, namespace) as url:
            healthz = httpx.URL(url).copy_with(path="/healthz")
            since = [time.monotonic()]

            def long_enough() -> bool:
                try:
                    httpx.get(healthz, timeout=2).raise_for_status()
                except httpx.HTTPError:
                    since[0] = time.monotonic()
                return time.monotonic() - since[0] > _ROUTES_SETTLE_SECONDS

            wait_until(long_enough, f"answers of the Service {namespace}/{cluster}", seconds=seconds)

    def _helm(self, *arguments: str, stdin: str | None = None) -> str:
        return self.target.helm(*arguments, "--namespace", OPERATOR_NAMESPACE, "--timeout", "300s", stdin=stdin)

    @contextlib.contextmanager
    def endpoint(self, cluster: str, namespace: str) -> Iterator[str]:
        """Base URL of the OpenAI API, usable from this process while the context lasts."""
        with self.target.reach(namespace, f"service/{cluster}", 80) as url:
            yield f"{url}/v1"

    def engine_metrics(self, cluster: str, namespace: str) -> list[str]:
        """The metrics pages of the engines that are there now."""
        with self.engine_pages(cluster, namespace) as pages:
            return pages()

    @contextlib.contextmanager
    def engine_pages(self, cluster: str, namespace: str) -> Iterator[Callable[[], list[str]]]:
        """A function that gives the metrics pages of these engines at that moment, without asking Kubernetes again."""
        key = self.engine_key(cluster, namespace)
        pods = [f"pod/{pod['metadata']['name']}" for pod in self.pods(cluster, namespace, "engine")]
        with contextlib.ExitStack() as ways:
            urls = [ways.enter_context(self.target.reach(namespace, pod, 8000)) for pod in pods]
            yield lambda: [scrape(f"{url}/metrics", key) for url in urls]

    def engine_key(self, cluster: str, namespace: str) -> str:
        """The key that engines ask for."""
        secret = self.get("secret", f"{cluster}-engine-key", namespace)
        if secret is None:
            raise OnenodeError(f"there is no Secret {namespace}/{cluster}-engine-key")
        return base64.b64decode(secret["data"]["api-key"]).decode()

    def story(self, cluster: str, namespace: str) -> str:
        """What someone would look at who wants to know why a cluster is not ready. For messages of failed tests."""
        commands = (
            ("describe", "axc", cluster, "-n", namespace),
            ("get", "pods", "-n", namespace, "-o", "wide"),
            ("get", "events", "-n", namespace, "--sort-by=.lastTimestamp"),
            ("logs", "-n", namespace, "-l", f"autellix.dev/cluster={cluster}", "--all-containers", "--tail=25"),
            ("logs", "-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/name=autellix-operator", "--tail=25"),
        )
        parts = []
        for command in commands:
            try:
                output = self.target.kubectl(*command)
            except OnenodeError as failed:
                output = str(failed)
            parts.append(f"--- kubectl {' '.join(command)}\n{output}")
        return "\n".join(parts)


def _problems(controller: str) -> list[str]:
    """Why a controller is not ready, or what it misses although it is. ``controller`` is its base URL."""
    try:
        state = httpx.get(f"{controller}/readyz", timeout=5).json()
    except httpx.HTTPError as failed:
        return [f"no answer: {failed!r}"]
    return [*state["reasons"], *state["degraded"]]
