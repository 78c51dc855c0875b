"""Kubernetes Events: one for each change of Ready or, where that stays, of Degraded. Pure functions."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from autellix_operator.api.conditions import FAILURES, ConditionType
from autellix_operator.api.names import FIELD_MANAGER, Cluster
from autellix_operator.api.spec import GROUP, KIND, VERSION
from autellix_operator.status import condition

_MESSAGE_LENGTH = 1024
"""The API server refuses longer ones."""


def event_of_change(
    cluster: Cluster, before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """The Event for the change from one status to the next; None if Ready and Degraded have the same status and reason.

    Its name follows from the change, so that a repeated attempt meets the Event of the first.
    """
    for type_ in (ConditionType.READY, ConditionType.DEGRADED):
        old, new = condition(before, type_), condition(after, type_)
        if (old.get("status"), old.get("reason")) != (new["status"], new["reason"]):
            break
    else:
        return None
    change = [
        cluster.uid,
        new["type"],
        str(new["observedGeneration"]),
        *(str(old.get(name)) for name in ("status", "reason", "lastTransitionTime")),
        new["status"],
        new["reason"],
    ]
    digest = hashlib.sha256("\0".join(change).encode()).hexdigest()[:16]
    time = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{cluster.name}.{digest}", "namespace": cluster.namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "namespace": cluster.namespace,
            "name": cluster.name,
            "uid": cluster.uid,
        },
        "type": "Warning" if new["reason"] in FAILURES else "Normal",
        "reason": new["reason"],
        "message": new["message"][:_MESSAGE_LENGTH],
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
