"""What a cluster that cannot start says of itself: a reason, and a message that names the thing."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.installation import Installation
from support.resources import autellix_cluster

# Alone in its namespace, which an operator that is confined to those of the other tests would not see.
pytestmark = [pytest.mark.heavy, pytest.mark.lab]
NAMESPACE = "causes"
IMAGE, SECRET, MODEL = "localhost/no-such-engine:dev", "no-such-token", "/models/no-such-model"
#: Next to nothing, so that all of them find room beside the other clusters of the node.
LITTLE = {"requests": {"cpu": "10m", "memory": "100Mi"}}

Spec = dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """What is wrong with a cluster, and what it has to say of it."""

    reason: str
    words: str
    model: Spec = field(default_factory=dict)
    engine: Spec = field(default_factory=dict)
    resources: Spec = field(default_factory=lambda: LITTLE)


#: Two of them start Python, and none gets as far as loading a model.
BROKEN = {
    "image": Broken("ImagePullFailed", IMAGE, engine={"image": IMAGE}),
    "token": Broken("SecretMissing", SECRET, model={"tokenSecretRef": {"name": SECRET}}),
    "room": Broken("Unschedulable", "Insufficient cpu", resources={"requests": {"cpu": "1000"}}),
    "model": Broken("CrashLoop", MODEL, model={"name": MODEL}),
    "memory": Broken("OutOfMemory", "memory limit", resources={**LITTLE, "limits": {"memory": "300Mi"}}),
}


def manifest(name: str, broken: Broken) -> dict[str, Any]:
    """A cluster that would serve but for one thing."""
    cluster = copy.deepcopy(autellix_cluster(name, NAMESPACE))
    spec = cluster["spec"]
    spec["model"] |= broken.model
    spec["engine"] |= {"drainSeconds": 0, **broken.engine}
    template = spec["engine"].setdefault("template", {}).setdefault("spec", {})
    containers = template.setdefault("containers", [{"name": "engine"}])
    next(each for each in containers if each["name"] == "engine")["resources"] = broken.resources
    spec["controller"]["template"] = {"spec": {"containers": [{"name": "controller", "resources": LITTLE}]}}
    member = {"spec": {"containers": [{"name": "etcd", "resources": LITTLE}]}}
    spec["processTable"] = {"etcd": {"managed": {"template": member}}}
    return cluster


@pytest.fixture
def broken(installation: Installation) -> Iterator[Installation]:
    """All broken clusters, at the same time; nothing of them is left."""
    installation.namespace(NAMESPACE)
    for name, each in BROKEN.items():
        installation.apply(manifest(name, each))
    yield installation
    kubectl = installation.target.kubectl
    kubectl("delete", "axc", "--all", "-n", NAMESPACE)
    # An engine that is starting listens to no signal yet.
    kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--grace-period=1")
    installation.wait_until(lambda: not installation.items("pods", NAMESPACE), "the pods gone", seconds=60)


def test_each_cause_is_named_and_keeps_its_name(broken: Installation) -> None:
    said: dict[str, list[tuple[str, str]]] = {name: [] for name in BROKEN}
    states: set[str] = set()

    def all_named() -> bool:
        for cluster in broken.items("axc", NAMESPACE):
            name, status = cluster["metadata"]["name"], cluster.get("status", {})
            ready = next((each for each in status.get("conditions", ()) if each["type"] == "Ready"), {"reason": ""})
            # Before the first pods were seen nothing is known; from the first cause on it is to stay.
            if said[name] or ready["reason"] == BROKEN[name].reason:
                said[name].append((ready["reason"], ready["message"]))
        for pod in broken.pods("image", NAMESPACE, "engine"):
            states.update(
                each["state"].get("waiting", {}).get("reason") for each in pod["status"].get("containerStatuses", ())
            )
        return all(said.values()) and "ImagePullBackOff" in states

    broken.wait_until(
        all_named, "a cause of each", seconds=120, detail=lambda: str({name: set(each) for name, each in said.items()})
    )
    for name, each in BROKEN.items():
        assert len(set(said[name])) == 1, f"{name}: another cause at each look"
        reason, message = said[name][0]
        assert (reason, each.words in message) == (each.reason, True), message
