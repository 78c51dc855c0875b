"""What a pod says of itself. Pure functions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from autellix_operator.api.names import COMPONENT_LABEL, Component

Object = Mapping[str, Any]

#: Label with Kubernetes' hash of the template that a Deployment made the pod from.
TEMPLATE_HASH: Final = "pod-template-hash"


def ready_condition(pod: Object) -> Mapping[str, Any]:
    """The condition Ready; empty as long as there is none."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Ready"), {})


def is_ready(pod: Object) -> bool:
    """Whether a pod serves and is not about to go."""
    return "deletionTimestamp" not in pod["metadata"] and ready_condition(pod).get("status") == "True"


def has_ended(pod: Object) -> bool:
    """Whether its containers have ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def accounts_in_use(pods: Iterable[Object], component: Component) -> frozenset[str]:
    """Names of the service accounts of a part's pods that have not ended."""
    ours = (pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) == component and not has_ended(pod))
    return frozenset(name for pod in ours if (name := pod.get("spec", {}).get("serviceAccountName")))
