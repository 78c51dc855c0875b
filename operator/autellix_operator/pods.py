"""What a pod says of itself. Pure functions."""

from collections.abc import Mapping
from typing import Any, Final

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
