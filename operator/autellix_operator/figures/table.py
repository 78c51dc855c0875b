"""What controllers say of the process table: whether they reach its etcd. Pure functions.

The operator has no business with an etcd of its own, and an etcd that runs elsewhere may admit controllers alone. So
nobody but they can tell, of an etcd elsewhere that it is well, of the cluster's that more than its pods is well.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from autellix_operator.api.names import COMPONENT_LABEL, Component
from autellix_operator.figures.parse import Unreadable
from autellix_operator.pods import TEMPLATE_HASH, is_ready, ready_condition

Object = Mapping[str, Any]

#: Time that a controller has to reach etcd, after its own start and after that of the members.
_SETTLE: Final = timedelta(seconds=30)
#: Of the cause; the controllers' logs have the rest.
_CAUSE_LENGTH: Final = 512


class TableState(BaseModel):
    """What one controller says."""

    connected: bool
    cause: str


class _Readiness(BaseModel):
    table: TableState


def table_state(answer: bytes) -> TableState:
    """Reads a controller's readiness. Raises Unreadable, also for that of a version that does not tell."""
    try:
        return _Readiness.model_validate_json(answer).table
    except ValidationError as error:
        raise Unreadable(str(error)) from error


def witnesses(pods: Sequence[Object], now: datetime, *, external: bool) -> list[Object]:
    """The controllers whose word counts, by name: of the newest pod template, ready or with the time to have been.

    What older ones say is not about what the spec wants now: they may still look for an etcd that is gone. None while
    members of the cluster's own etcd are away or have just come back: then their pods say what there is to say, and
    controllers are still about to find out that it is over.
    """
    members = [pod for pod in pods if _component(pod) == Component.ETCD]
    if not external and (not members or any(_ready_for(pod, now) < _SETTLE for pod in members)):
        return []
    controllers = _newest(pod for pod in pods if _component(pod) == Component.CONTROLLER)
    found = [pod for pod in controllers if is_ready(pod) or _running_for(pod, now) >= _SETTLE]
    found = [pod for pod in found if pod["status"].get("podIP")]
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


def summary(states: Iterable[TableState]) -> dict[str, Any]:
    """What the status says of it; empty if no controller has answered."""
    told = list(states)
    away = [state for state in told if not state.connected]
    if not told:
        return {}
    counts: dict[str, Any] = {"controllers": len(told), "connected": len(told) - len(away)}
    return counts | {"cause": " ".join(away[0].cause.split())[:_CAUSE_LENGTH]} if away else counts


def _component(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(COMPONENT_LABEL, ""))


def _newest(pods: Iterable[Object]) -> list[Object]:
    """Those of the template of which a pod was made last."""
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if not living:
        return []
    youngest = max(living, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    return [pod for pod in living if _template(pod) == _template(youngest)]


def _template(pod: Object) -> str | None:
    found: str | None = pod["metadata"]["labels"].get(TEMPLATE_HASH)
    return found


def _ready_for(pod: Object, now: datetime) -> timedelta:
    since = ready_condition(pod).get("lastTransitionTime")
    return now - datetime.fromisoformat(since) if is_ready(pod) and since else timedelta()


def _running_for(pod: Object, now: datetime) -> timedelta:
    containers = pod.get("status", {}).get("containerStatuses", ())
    since = [each.get("state", {}).get("running", {}).get("startedAt") for each in containers]
    if "deletionTimestamp" in pod["metadata"] or not since or not all(since):
        return timedelta()
    return now - max(map(datetime.fromisoformat, since))
