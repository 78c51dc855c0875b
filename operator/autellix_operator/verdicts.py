"""What each condition of a cluster says, from what is wanted and what is there. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autellix_operator.api.conditions import FAILURES, ConditionType, Reason
from autellix_operator.api.names import COMPONENT_LABEL, Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.desired.controller import endpoint
from autellix_operator.diagnosis import Diagnosis, Object, diagnose, refused_pods
from autellix_operator.newest import newest_pods

_PARTS = {
    Component.ETCD: ConditionType.PROCESS_TABLE_READY,
    Component.CONTROLLER: ConditionType.CONTROLLER_READY,
    Component.ENGINE: ConditionType.ENGINES_READY,
}
_NOUNS = {Component.ETCD: "etcd member", Component.CONTROLLER: "controller", Component.ENGINE: "engine"}
#: A part with one of these reasons is on its way.
_MOVING = frozenset({Reason.STARTING, Reason.UPDATING})


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
    pull_secrets: Diagnosis | None = None
    """A Secret for image registries that is not there: told where an image cannot be had."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What conditions are judged by, of that which the spec wants."""

    endpoint: str
    engines: int
    external_table: bool
    """Whether etcd runs elsewhere."""
    hold_seconds: int | None
    """How long calls are held where there is no engine; None: not known."""
    monitoring: bool
    """Whether objects of the Prometheus Operator are wanted."""

    @classmethod
    def by(cls, cluster: Cluster, spec: Spec) -> "Wanted":
        """What a spec wants."""
        return cls(
            endpoint(cluster, spec),
            spec.engine.replicas,
            spec.process_table.etcd.endpoints is not None,
            spec.controller.deadlines.hold_seconds,
            spec.monitoring.wanted,
        )


def judge(wanted: Wanted, observed: Observed, now: datetime) -> dict[ConditionType, Verdict]:
    """What each condition says."""
    parts = {_PARTS[component]: _part(component, wanted, observed, now) for component in _PARTS}
    # What is not known keeps nothing from serving: controllers that are ready have read the process table.
    unready = [verdict for verdict in parts.values() if verdict.status is False]
    failed = [verdict for verdict in unready if verdict.reason in FAILURES]
    moving = [verdict for verdict in unready if verdict.reason in _MOVING]
    if unready:
        first = (failed or moving or unready)[0]
        ready = Verdict(False, first.reason, first.message)
    else:
        ready = Verdict(True, Reason.AVAILABLE, f"calls are served at {wanted.endpoint}")
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
    if wanted.monitoring:
        verdicts[ConditionType.MONITORING_READY] = _monitoring(observed.monitoring)
    return verdicts


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


def _part(component: Component, wanted: Wanted, observed: Observed, now: datetime) -> Verdict:
    if problem := observed.problems.get(component):
        return Verdict(False, problem.reason, problem.message)
    if component == Component.ETCD and wanted.external_table:
        return _external_table(observed.table)
    workload = observed.workloads.get(component)
    noun = _NOUNS[component]
    if workload is None:
        return Verdict(False, Reason.STARTING, f"{noun}s are not made yet")
    replicas, status = workload["spec"]["replicas"], workload.get("status", {})
    seen = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    total, updated, ready = (status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas"))
    if seen and total == updated == replicas and ready >= replicas:
        if replicas == 0:
            return Verdict(False, Reason.SCALED_TO_ZERO, f"no {noun} is wanted{_without_engines(wanted.hold_seconds)}")
        unreachable = _unreachable(observed.table) if component == Component.ETCD else None
        return unreachable or Verdict(True, Reason.AVAILABLE, f"{ready} of {replicas} {noun}s serve")
    if missing := observed.missing.get(component):
        return Verdict(False, missing.reason, missing.message)
    pods = [each for each in observed.pods if each["metadata"]["labels"].get(COMPONENT_LABEL) == component]
    claims = [each for each in observed.claims if each["metadata"]["labels"].get(COMPONENT_LABEL) == component]
    newest = newest_pods(workload, pods, observed.replica_sets)
    if problem := refused_pods(workload) or diagnose(newest, claims, now):
        hint = observed.pull_secrets if problem.reason == Reason.IMAGE_PULL_FAILED else None
        return Verdict(False, problem.reason, f"{problem.message}; {hint.message}" if hint else problem.message)
    if total == 0 or (seen and total == updated):
        return Verdict(False, Reason.STARTING, f"{ready} of {replicas} {noun}s serve")
    progress = (
        f"{updated} of {replicas} {noun}s run the newest template" if seen else f"a change of {noun}s is under way"
    )
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


def _without_engines(hold_seconds: int | None) -> str:
    """What calls meet."""
    if hold_seconds is None:
        return ""
    return f": calls are held for at most {hold_seconds} s" if hold_seconds else ": calls are answered with 503"
