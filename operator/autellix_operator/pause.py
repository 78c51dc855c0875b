"""The annotation that stops the operator's hand."""

from collections.abc import Mapping
from typing import Any

from autellix_operator.api.names import PAUSED_ANNOTATION


def is_paused(resource: Mapping[str, Any]) -> bool:
    """Whether nothing of a cluster may be changed."""
    return bool(resource["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true")
