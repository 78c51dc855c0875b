"""Which pods are of the newest template of their workload. Pure functions.

Conditions speak of the newest generation, so a failure of a pod that is being replaced must not be told as one of its
successor. Pods and ReplicaSets are matched as Kubernetes' own controllers do it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from autellix_operator.pods import TEMPLATE_HASH

Object = Mapping[str, Any]

_REVISION = "controller-revision-hash"


def newest_pods(workload: Object, pods: Iterable[Object], replica_sets: Iterable[Object]) -> list[Object]:
    """The pods of the newest template.

    Older ones only where none of the newest is wanted or seen yet although Kubernetes knows the newest template; none
    at all as long as it does not, for then nothing can be said. ``pods`` are those of the workload's component.
    """
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if workload["kind"] == "StatefulSet":
        status = workload.get("status", {})
        if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
            return []
        return _labelled(living, _REVISION, status.get("updateRevision")) or living
    newest = _newest(workload, replica_sets)
    if newest is None:
        return []
    found = _labelled(living, TEMPLATE_HASH, newest["metadata"]["labels"][TEMPLATE_HASH])
    return found if found or newest["spec"]["replicas"] else living


def newest_revision(deployment: Object, replica_sets: Iterable[Object]) -> str | None:
    """Kubernetes' hash of the newest template, part of the names of its pods; None as long as there is none."""
    newest = _newest(deployment, replica_sets)
    return None if newest is None else str(newest["metadata"]["labels"][TEMPLATE_HASH])


def _newest(deployment: Object, replica_sets: Iterable[Object]) -> Object | None:
    return next((each for each in replica_sets if _is_newest(deployment, each)), None)


def _labelled(pods: Iterable[Object], label: str, value: str | None) -> list[Object]:
    return [pod for pod in pods if pod["metadata"]["labels"].get(label) == value]


def _is_newest(deployment: Object, replica_set: Object) -> bool:
    owners = replica_set["metadata"].get("ownerReferences", ())
    if all(owner["uid"] != deployment["metadata"]["uid"] for owner in owners):
        return False
    template = replica_set["spec"]["template"]
    labels = {name: value for name, value in template["metadata"]["labels"].items() if name != TEMPLATE_HASH}
    metadata = {**template["metadata"], "labels": labels}
    expected: Object = deployment["spec"]["template"]
    return {**template, "metadata": metadata} == expected
