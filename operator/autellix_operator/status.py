"""The status of a cluster as a pure function of what is wanted, what is there, the previous status and the time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from autellix_operator.api.conditions import FAILURES, ConditionType, Reason
from autellix_operator.api.names import COMPONENT_LABEL, Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.desired.controller import endpoint
from autellix_operator.diagnosis import Diagnosis, Object, diagnose, refused_pods
from autellix_operator.newest import newest_pods
from autellix_operator.pods import is_ready

_PARTS = {
    Component.ETCD: ConditionType.PROCESS_TABLE_READY,
    Component.CONTROLLER: ConditionType.CONTROLLER_READY,
    Component.ENGINE: ConditionType.ENGINES_READY,
}
_NOUNS = {Component.ETCD: "etcd member", Component.CONTROLLER: "controller", Component.ENGINE: "engine"}
#: A part with one of these reasons is on its way.
_MOVING = frozenset({Reason.STARTING, Reason.UPDATING})
_FIGURES = ("programs", "processTable")
#: The CRD refuses longer messages, and with them the whole status.
_MESSAGE_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition says."""

    status: bool | None
    """None: unknown."""
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What was found in Kubernetes."""

    workloads: Mapping[Component, Object] = field(default_factory=dict)
    """Deployments and the StatefulSet as they are after they were applied."""
    pods: Sequence[Object] = ()
    replica_sets: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    problems: Mapping[Component, Diagnosis] = field(default_factory=dict)
    """What kept us from applying a part: it is not what the spec wants, even if it serves."""
    missing: Mapping[Component, Diagnosis] = field(default_factory=dict)
    """Objects of others that a part refers to and that are not there. Pods that run already may go on without."""
    monitoring: Diagnosis | None = None
    """What is wrong with the objects of the Prometheus Operator."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """What controllers said last of the process table: the field ``processTable`` of the status."""


def status_of(
    cluster: Cluster, spec: Spec, generation: int, observed: Observed, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """The whole status. ``previous`` is the live one: conditions that did not flip keep their transition time."""
    verdicts = judge(cluster, spec, observed, now)
    deployment = observed.workloads.get(Component.ENGINE, {}).get("status", {})
    ready = deployment.get("readyReplicas", 0)
    selector = cluster.selector(Component.ENGINE)
    return {
        "observedGeneration": generation,
        "endpoint": endpoint(cluster, spec),
        "replicas": deployment.get("replicas", 0),
        "readyReplicas": ready,
        "engines": f"{ready}/{spec.engine.replicas}",
        "engineStates": engine_states(observed.pods),
        "selector": ",".join(f"{name}={value}" for name, value in selector.items()),
        "conditions": _conditions(verdicts, generation, previous, now),
    }


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


def judge(cluster: Cluster, spec: Spec, observed: Observed, now: datetime) -> dict[ConditionType, Verdict]:
    """What each condition says."""
    parts = {_PARTS[component]: _part(component, spec, observed, now) for component in _PARTS}
    # What is not known keeps nothing from serving: controllers that are ready have read the process table.
    unready = [verdict for verdict in parts.values() if verdict.status is False]
    failed = [verdict for verdict in unready if verdict.reason in FAILURES]
    moving = [verdict for verdict in unready if verdict.reason in _MOVING]
    if unready:
        first = (failed or moving or unready)[0]
        ready = Verdict(False, first.reason, first.message)
    else:
        ready = Verdict(True, Reason.AVAILABLE, f"calls are served at {endpoint(cluster, spec)}")
    if moving:
        progressing = Verdict(True, moving[0].reason, moving[0].message)
    elif failed:
        progressing = Verdict(False, failed[0].reason, failed[0].message)
    else:
        progressing = Verdict(False, Reason.AVAILABLE, "all is as the spec wants it")
    verdicts: dict[ConditionType, Verdict] = {
        ConditionType.READY: ready,
        **parts,
        ConditionType.PROGRESSING: progressing,
        ConditionType.DEGRADED: _degraded(failed, observed),
    }
    if spec.monitoring.wanted:
        verdicts[ConditionType.MONITORING_READY] = _monitoring(observed.monitoring)
    return verdicts


def paused(status: Mapping[str, Any], previous: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """``status`` of a cluster of which nothing may be changed: it speaks of the generation that was applied last."""
    generation = previous.get("observedGeneration", status["observedGeneration"])
    verdict = Verdict(False, Reason.PAUSED, "paused by annotation: nothing is changed")
    (progressing,) = _conditions({ConditionType.PROGRESSING: verdict}, generation, previous, now)
    conditions = [
        progressing if each["type"] == ConditionType.PROGRESSING else {**each, "observedGeneration": generation}
        for each in status["conditions"]
    ]
    return {**status, "observedGeneration": generation, "conditions": conditions}


def _degraded(failed: list[Verdict], observed: Observed) -> Verdict:
    if failed:
        return Verdict(True, failed[0].reason, failed[0].message)
    # What serves already and lacks something that its next start needs.
    for missing in observed.missing.values():
        return Verdict(True, missing.reason, missing.message)
    return Verdict(False, Reason.AVAILABLE, "nothing is known to be wrong")


def _monitoring(problem: Diagnosis | None) -> Verdict:
    if problem is not None:
        return Verdict(False, problem.reason, problem.message)
    return Verdict(True, Reason.AVAILABLE, "all that the spec wants is there")


def own_fields(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without the figures, which have a writer of their own."""
    return {name: value for name, value in status.items() if name not in _FIGURES}


def engine_states(pods: Sequence[Object]) -> dict[str, int]:
    """How many engines serve, start, and end; those that cannot start for a reason that is told count as starting."""
    states = {"serving": 0, "starting": 0, "draining": 0}
    for pod in pods:
        if pod["metadata"]["labels"].get(COMPONENT_LABEL) != Component.ENGINE:
            continue
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        draining = "deletionTimestamp" in pod["metadata"]
        states["draining" if draining else "serving" if is_ready(pod) else "starting"] += 1
    return states


def condition(status: Mapping[str, Any], type_: ConditionType) -> Mapping[str, Any]:
    """A condition of a status; empty if there is none yet."""
    found = (each for each in status.get("conditions", ()) if each["type"] == type_)
    return next(found, {})


def _part(component: Component, spec: Spec, observed: Observed, now: datetime) -> Verdict:
    if component == Component.ETCD and spec.process_table.etcd.endpoints is not None:
        return _external_table(observed.table)
    workload = observed.workloads.get(component)
    noun = _NOUNS[component]
    if problem := observed.problems.get(component):
        return Verdict(False, problem.reason, problem.message)
    if workload is None:
        return Verdict(False, Reason.STARTING, f"{noun}s are not made yet")
    wanted, status = workload["spec"]["replicas"], workload.get("status", {})
    seen = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    total, updated, ready = (status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas"))
    if seen and total == updated == wanted and ready >= wanted:
        if wanted == 0:
            return Verdict(False, Reason.SCALED_TO_ZERO, f"no {noun} is wanted: {_without_engines(spec)}")
        unreachable = _unreachable(observed.table) if component == Component.ETCD else None
        return unreachable or Verdict(True, Reason.AVAILABLE, f"{ready} of {wanted} {noun}s serve")
    if missing := observed.missing.get(component):
        return Verdict(False, missing.reason, missing.message)
    pods = [each for each in observed.pods if each["metadata"]["labels"].get(COMPONENT_LABEL) == component]
    claims = [each for each in observed.claims if each["metadata"]["labels"].get(COMPONENT_LABEL) == component]
    newest = newest_pods(workload, pods, observed.replica_sets)
    if problem := refused_pods(workload) or diagnose(newest, claims, now):
        return Verdict(False, problem.reason, problem.message)
    if total == 0 or (seen and total == updated):
        return Verdict(False, Reason.STARTING, f"{ready} of {wanted} {noun}s serve")
    progress = f"{updated} of {wanted} {noun}s run the newest template" if seen else f"a change of {noun}s is under way"
    return Verdict(False, Reason.UPDATING, progress)


def _external_table(said: Mapping[str, Any]) -> Verdict:
    if not said:
        message = "etcd runs elsewhere; no controller has said yet whether it reaches it"
        return Verdict(None, Reason.NOT_REPORTED, message)
    reached = f"etcd runs elsewhere; {said['connected']} of {said['controllers']} controllers reach it"
    return _unreachable(said) or Verdict(True, Reason.EXTERNAL, reached)


def _unreachable(said: Mapping[str, Any]) -> Verdict | None:
    if not said or said["connected"] == said["controllers"]:
        return None
    away = said["controllers"] - said["connected"]
    message = (
        f"{away} of {said['controllers']} controllers cannot reach etcd: {said.get('cause') or 'no cause is told'}"
    )
    return Verdict(False, Reason.TABLE_UNREACHABLE, message)


def _without_engines(spec: Spec) -> str:
    """What calls meet."""
    seconds = spec.controller.deadlines.hold_seconds
    return f"calls are held for at most {seconds} s" if seconds else "calls are answered with 503"


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
