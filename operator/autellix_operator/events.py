"""Kubernetes Events: one for each change of Ready or, where that stays, of Degraded. Pure functions.

A failure that has another message is another cause, which somebody who has mended the first waits for. Messages with
numbers or names of pods change by themselves, so they count only after a change of the spec.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from autellix_operator.api.conditions import FAILURES, ConditionType, Reason
from autellix_operator.api.names import FIELD_MANAGER, Cluster
from autellix_operator.api.spec import GROUP, KIND, VERSION
from autellix_operator.status import condition

_MESSAGE_LENGTH = 1024
"""The API server refuses longer ones."""
#: Their messages name objects and fields, and change with them only.
_STEADY = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.NAME_CONFLICT,
        Reason.SECRET_MISSING,
        Reason.CONFIG_MAP_MISSING,
        Reason.CLAIM_MISSING,
    }
)


def event_of_change(
    cluster: Cluster, before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """The Event for the change from one status to the next; None if Ready and Degraded say the same.

    Its name follows from the change, so that a repeated attempt meets the Event of the first.
    """
    for type_ in (ConditionType.READY, ConditionType.DEGRADED):
        old, new = condition(before, type_), condition(after, type_)
        if not _is_same(old, new) or _is_another_cause(old, new):
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
        *([new["message"]] if _is_same(old, new) else []),
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


def _is_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return (old.get("status"), old.get("reason")) == (new["status"], new["reason"])


def _is_another_cause(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if new["reason"] not in FAILURES or old["message"] == new["message"]:
        return False
    return new["reason"] in _STEADY or old["observedGeneration"] != new["observedGeneration"]
