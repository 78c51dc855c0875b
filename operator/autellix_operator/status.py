"""The status of a cluster as a pure function of what is wanted, what is there, the previous status and the time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autellix_operator.api.conditions import ConditionType, Reason
from autellix_operator.api.names import COMPONENT_LABEL, Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.diagnosis import Object
from autellix_operator.pods import has_ended, is_ready
from autellix_operator.verdicts import Observed, Verdict, Wanted, judge

_FIGURES = ("programs", "processTable")
#: The CRD refuses longer messages, and with them the whole status.
_MESSAGE_LENGTH = 2048


def status_of(
    cluster: Cluster, spec: Spec, generation: int, observed: Observed, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """The whole status. ``previous`` is the live one: conditions that did not flip keep their transition time."""
    wanted = Wanted.by(cluster, spec)
    conditions = _conditions(judge(wanted, observed, now), generation, previous, now)
    return _status(cluster, wanted, generation, observed, conditions)


def paused_status(
    cluster: Cluster, spec: Spec, generation: int, observed: Observed, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """The status of a cluster of which nothing may be changed: it speaks of the generation that was applied last."""
    applied = previous.get("observedGeneration", generation)
    wanted = Wanted.by(cluster, spec)
    if applied != generation:
        wanted = _of_before(wanted, observed, previous)
        # It is the spec that waits that refers to them.
        observed = replace(observed, missing={}, pull_secrets=None)
    # Nothing was applied, so nothing was found out about that.
    verdicts = judge(replace(wanted, monitoring=False), observed, now)
    verdicts[ConditionType.PROGRESSING] = Verdict(False, Reason.PAUSED, "paused by annotation: nothing is changed")
    conditions = _conditions(verdicts, applied, previous, now)
    if monitoring := condition(previous, ConditionType.MONITORING_READY):
        conditions.append(dict(monitoring))
    return _status(cluster, wanted, applied, observed, conditions)


def invalid_status(message: str, generation: int, previous: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The status of a cluster whose spec is wrong: its parts stay as they are and are not judged."""
    unknown = Verdict(None, Reason.INVALID_SPEC, "not judged: the spec is not valid, nothing is changed until it is")
    wrong = Verdict(False, Reason.INVALID_SPEC, message)
    verdicts: dict[ConditionType, Verdict] = {
        **{type_: unknown for type_ in ConditionType if type_ != ConditionType.MONITORING_READY},
        ConditionType.READY: wrong,
        ConditionType.PROGRESSING: wrong,
        ConditionType.DEGRADED: Verdict(True, Reason.INVALID_SPEC, message),
    }
    return {
        **own_fields(previous),
        "observedGeneration": generation,
        "conditions": _conditions(verdicts, generation, previous, now),
    }


def own_fields(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without the figures, which have a writer of their own."""
    return {name: value for name, value in status.items() if name not in _FIGURES}


def engine_states(pods: Sequence[Object]) -> dict[str, int]:
    """How many engines serve, start, and end; those that cannot start for a reason that is told count as starting."""
    states = {"serving": 0, "starting": 0, "draining": 0}
    for pod in pods:
        if pod["metadata"]["labels"].get(COMPONENT_LABEL) != Component.ENGINE:
            continue
        if has_ended(pod):
            continue
        draining = "deletionTimestamp" in pod["metadata"]
        states["draining" if draining else "serving" if is_ready(pod) else "starting"] += 1
    return states


def condition(status: Mapping[str, Any], type_: ConditionType) -> Mapping[str, Any]:
    """A condition of a status; empty if there is none yet."""
    found = (each for each in status.get("conditions", ()) if each["type"] == type_)
    return next(found, {})


def _status(
    cluster: Cluster, wanted: Wanted, generation: int, observed: Observed, conditions: list[dict[str, Any]]
) -> dict[str, Any]:
    deployment = observed.workloads.get(Component.ENGINE, {}).get("status", {})
    ready = deployment.get("readyReplicas", 0)
    selector = cluster.selector(Component.ENGINE)
    return {
        "observedGeneration": generation,
        "endpoint": wanted.endpoint,
        "replicas": deployment.get("replicas", 0),
        "readyReplicas": ready,
        "engines": f"{ready}/{wanted.engines}",
        "engineStates": engine_states(observed.pods),
        "selector": ",".join(f"{name}={value}" for name, value in selector.items()),
        "conditions": conditions,
    }


def _of_before(wanted: Wanted, observed: Observed, previous: Mapping[str, Any]) -> Wanted:
    """What the spec before wanted, as far as its traces say; the rest is as in ``wanted``."""
    engines = observed.workloads.get(Component.ENGINE)
    return replace(
        wanted,
        endpoint=previous.get("endpoint", wanted.endpoint),
        engines=engines["spec"]["replicas"] if engines else wanted.engines,
        external_table=Component.ETCD not in observed.workloads,
        hold_seconds=None,
    )


def _conditions(
    verdicts: Mapping[ConditionType, Verdict], generation: int, previous: Mapping[str, Any], now: datetime
) -> list[dict[str, Any]]:
    before = {each["type"]: each for each in previous.get("conditions", ())}
    conditions = []
    for type_, verdict in verdicts.items():
        status = {True: "True", False: "False", None: "Unknown"}[verdict.status]
        old = before.get(type_, {})
        since = old["lastTransitionTime"] if old.get("status") == status else _timestamp(now)
        conditions.append(
            {
                "type": str(type_),
                "status": status,
                "reason": str(verdict.reason),
                "message": verdict.message[:_MESSAGE_LENGTH],
                "observedGeneration": generation,
                "lastTransitionTime": since,
            }
        )
    return conditions


def _timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
