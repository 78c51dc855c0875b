"""One reconcile: from what is, whatever woke us, to what the spec wants.

The same function serves creation, change, drift, restart of the operator and change of a child. It reads the resource
and its children, applies all desired objects, removes children that are no longer desired, and writes the status.
Each step may run twice. A reconcile that finds everything in place writes nothing. Deletion needs no step of ours:
every object has an owner reference, and volume claims belong to their StatefulSet, so Kubernetes' garbage collection
removes all, with or without a running operator.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from autellix_operator.api.base import InvalidSpec
from autellix_operator.api.conditions import ConditionType, Reason
from autellix_operator.api.names import COMPONENT_LABEL, PAUSED_ANNOTATION, Cluster, Component, Key
from autellix_operator.api.spec import GROUP, KIND, VERSION, Spec, parse_spec
from autellix_operator.applied import AppliedBefore
from autellix_operator.children import Children, ForeignObject, Leftover
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.objects import Images, desired_objects
from autellix_operator.desired.secrets import certificate_digest, contents_digest
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.events import event_of_change
from autellix_operator.keys.engine import ensure_engine_keys
from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    CLAIM,
    DEPLOYMENT,
    EVENT,
    OPTIONAL,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    ApiError,
    Applier,
    Conflict,
    NotFound,
    Object,
    Refused,
)
from autellix_operator.newest import newest_revision
from autellix_operator.references import look_up, references
from autellix_operator.status import Observed, condition, invalid_status, own_fields, paused, status_of
from autellix_operator.tls.table import ensure_table_secrets

log = logging.getLogger(__name__)

#: A predecessor's objects are being removed: look again soon.
_LEFTOVER_SECONDS: Final = 2.0
#: What is refused now may be accepted later, without anything that would wake us.
_PROBLEM_SECONDS: Final = 30.0
#: A time that has just passed is none to wait for, and no reason to hurry either.
_SOONEST_SECONDS: Final = 1.0
_WORKLOADS: Final = (DEPLOYMENT.kind, STATEFUL_SET.kind)
_OPTIONAL: Final = tuple(resource.kind for resource in OPTIONAL)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the condition Ready says."""

    ready: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile leaves to its caller."""

    requeue_after: float | None = None
    """Seconds after which to look again at the latest; None: when something changes, or at the next resync."""
    references: frozenset[tuple[str, str]] = frozenset()
    """Kinds and names of the objects that the spec refers to: a change of one of them is a change for this cluster."""
    exists: bool = True
    """False: the resource is gone."""
    readiness: Readiness | None = None
    """What the condition Ready says now; None: nothing new is known."""


@dataclass(slots=True)
class Applied:
    """What came of applying all objects of a cluster."""

    workloads: dict[Component, Object]
    problems: dict[Component, Diagnosis] = field(default_factory=dict)
    monitoring: Diagnosis | None = None
    changes_at: datetime | None = None
    """When the cluster is to be looked at, since what is wanted changes then by itself."""


class Reconciler:
    """Reconciles clusters. Keeps nothing between two reconciles but what saves it work.

    ``now`` gives the time, ``new_secret`` a long random text of printable characters; ``operator_namespace`` is
    where the operator runs, empty outside of Kubernetes. ``refresh_figures`` is called before engines are taken away,
    so that those with the fewest programs go.
    """

    def __init__(
        self,
        applier: Applier,
        images: Images,
        now: Callable[[], datetime],
        new_secret: Callable[[], str],
        operator_namespace: str = "",
        refresh_figures: Callable[[Key], Awaitable[object]] | None = None,
    ) -> None:
        self._applier = applier
        self._images = images
        self._now = now
        self._new_secret = new_secret
        self._operator_namespace = operator_namespace
        self._refresh_figures = refresh_figures
        self._before = AppliedBefore()

    async def reconcile(self, key: Key) -> Result:
        """Brings one cluster to what its spec wants. Raises ApiError: then it is to be tried again."""
        try:
            resource = await self._applier.get(AUTELLIX_CLUSTER, key.namespace, key.name)
        except NotFound:
            self._before.forget(key)
            return Result(exists=False)
        if "deletionTimestamp" in resource["metadata"]:
            return Result()
        try:
            return await self._reconcile(resource, parse_spec(resource))
        except InvalidSpec as error:
            generation, previous = resource["metadata"]["generation"], resource.get("status", {})
            status = invalid_status(str(error), generation, previous, self._now())
            await self._write_status(resource, status)
            return Result(readiness=_readiness(status))
        except Leftover:
            return Result(requeue_after=_LEFTOVER_SECONDS)

    async def _reconcile(self, resource: Object, spec: Spec) -> Result:
        cluster = Cluster.of(resource)
        generation, previous = resource["metadata"]["generation"], resource.get("status", {})
        children = await Children.read(self._applier, cluster, self._before)
        wanted = references(spec)
        referenced = await look_up(self._applier, cluster.namespace, wanted)
        stopped = resource["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true"
        if stopped:
            applied = Applied(children.workloads())
        else:
            applied = await self._apply_all(cluster, spec, children, referenced.held)
        observed = Observed(
            applied.workloads,
            children.all(POD),
            children.all(REPLICA_SET),
            children.all(CLAIM),
            applied.problems,
            referenced.missing,
            applied.monitoring,
            previous.get("processTable", {}),
        )
        status = status_of(cluster, spec, generation, observed, previous, self._now())
        if stopped:
            status = paused(status, previous, self._now())
        await self._write_status(resource, status)
        again = [_PROBLEM_SECONDS] if applied.problems or applied.monitoring or referenced.missing else []
        if applied.changes_at is not None:
            again.append(max(_SOONEST_SECONDS, (applied.changes_at - self._now()).total_seconds()))
        return Result(
            requeue_after=min(again, default=None),
            references=frozenset((each.resource.kind, each.name) for each in wanted),
            readiness=_readiness(status),
        )

    async def _apply_all(
        self, cluster: Cluster, spec: Spec, children: Children, held: Mapping[Component, Sequence[str]]
    ) -> "Applied":
        applied = Applied({})
        etcd = spec.process_table.etcd.managed
        try:
            keys = await ensure_engine_keys(children, cluster, self._new_secret, self._now())
            table = await ensure_table_secrets(children, cluster, etcd, self._now()) if etcd else None
        except (ForeignObject, Refused) as error:
            applied.problems.update(dict.fromkeys(Component, _diagnosis("Secret", error)))
            return applied
        shown = contents_digest(keys.salt, held.get(Component.CONTROLLER, ()))
        digests = Digests(
            contents_digest(keys.salt, held.get(Component.ENGINE, ())),
            certificate_digest(table.authority) if table else "",
            certificate_digest(table.client) if table else shown,
        )
        applied.changes_at = keys.until
        await self._prepare_scale_down(cluster, spec, children)
        engines = children.workloads().get(Component.ENGINE)
        revision = newest_revision(engines, children.all(REPLICA_SET)) if engines else None
        desired = desired_objects(cluster, spec, self._images, digests, self._operator_namespace, revision)
        for manifest in desired:
            await self._apply(children, manifest, applied)
        await children.remove_all_but([*keys.all, *(table.all if table else ()), *desired])
        return applied

    async def _prepare_scale_down(self, cluster: Cluster, spec: Spec, children: Children) -> None:
        live = children.workloads().get(Component.ENGINE)
        if self._refresh_figures is None or live is None or live["spec"]["replicas"] <= spec.engine.replicas:
            return
        try:
            await self._refresh_figures(Key(cluster.namespace, cluster.name))
        except ApiError as error:
            log.info("%s/%s: engines are taken away by older figures: %s", cluster.namespace, cluster.name, error)

    async def _apply(self, children: Children, manifest: dict[str, Any], applied: "Applied") -> None:
        kind = manifest["kind"]
        optional = kind in _OPTIONAL
        component = Component(manifest["metadata"]["labels"][COMPONENT_LABEL])
        if not children.can_have(kind):
            message = f"Kubernetes has no {kind} ({manifest['apiVersion']}): the Prometheus Operator is not installed"
            applied.monitoring = applied.monitoring or Diagnosis(Reason.API_MISSING, message)
            return
        try:
            live = await children.apply(manifest)
        except (ForeignObject, Refused) as error:
            if optional:
                applied.monitoring = applied.monitoring or _diagnosis(kind, error)
            else:
                applied.problems[component] = _diagnosis(kind, error)
        else:
            if kind in _WORKLOADS:
                applied.workloads[component] = live

    async def _write_status(self, resource: Object, status: dict[str, Any]) -> None:
        before = own_fields(resource.get("status", {}))
        if status == before:
            return
        cluster = Cluster.of(resource)
        event = event_of_change(cluster, before, status, self._now())
        if event is not None:
            # Before the status: an attempt that fails in between finds its own Event and goes on.
            log.info("%s/%s: %s: %s", cluster.namespace, cluster.name, event["reason"], event["message"])
            with contextlib.suppress(Conflict):
                await self._applier.create(EVENT, event)
        metadata = {"name": cluster.name, "namespace": cluster.namespace}
        manifest = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "status": status}
        await self._applier.apply_status(AUTELLIX_CLUSTER, manifest)


def _readiness(status: Mapping[str, Any]) -> Readiness:
    found = condition(status, ConditionType.READY)
    return Readiness(found["status"] == "True", found["reason"])


def _diagnosis(kind: str, error: ForeignObject | Refused) -> Diagnosis:
    if isinstance(error, ForeignObject):
        return Diagnosis(Reason.NAME_CONFLICT, str(error))
    return Diagnosis(Reason.APPLY_REFUSED, f"{kind}: {error}"[:1000])
