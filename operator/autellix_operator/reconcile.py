"""One reconcile: from what is, whatever woke us, to what the spec wants.

The same function serves creation, change, drift, restart of the operator and change of a child. It reads the resource
and its children, applies all desired objects, removes children that are no longer desired, and writes the status.
Each step may run twice. A reconcile that finds everything in place writes nothing. Deletion needs no step of ours:
every object has an owner reference, and volume claims belong to their StatefulSet, so Kubernetes' garbage collection
removes all, with or without a running operator.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from autellix_operator.api.base import InvalidSpec
from autellix_operator.api.conditions import ConditionType, Reason
from autellix_operator.api.names import Cluster, Key
from autellix_operator.api.spec import GROUP, KIND, VERSION, Spec, parse_spec
from autellix_operator.applied import AppliedBefore
from autellix_operator.children import Children, Leftover
from autellix_operator.desired.objects import Images
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.events import event_of_change
from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    CLAIM,
    EVENT,
    POD,
    REPLICA_SET,
    ApiError,
    Applier,
    Conflict,
    NotFound,
    Object,
)
from autellix_operator.maker import Applied, Maker, nothing_applied
from autellix_operator.pause import is_paused
from autellix_operator.references import look_up, references
from autellix_operator.status import condition, invalid_status, own_fields, paused_status, status_of
from autellix_operator.verdicts import Observed

log = logging.getLogger(__name__)

#: A predecessor's objects are being removed: look again soon.
_LEFTOVER_SECONDS: Final = 2.0
#: Garbage collection takes seconds, and pods their grace period. What is there for longer after a cluster was made
#: waits for somebody.
_LEFTOVER_PATIENCE: Final = timedelta(seconds=30)
#: What is refused now may be accepted later, without anything that would wake us.
_PROBLEM_SECONDS: Final = 30.0
#: A time that has just passed is none to wait for, and no reason to hurry either.
_SOONEST_SECONDS: Final = 1.0


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
        self._now = now
        self._maker = Maker(images, now, new_secret, operator_namespace, refresh_figures)
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

    async def _reconcile(self, resource: Object, spec: Spec) -> Result:
        cluster = Cluster.of(resource)
        generation, previous = resource["metadata"]["generation"], resource.get("status", {})
        children = await Children.read(self._applier, cluster, self._before)
        wanted = references(spec)
        referenced = await look_up(self._applier, cluster.namespace, wanted)
        stopped = is_paused(resource)
        if stopped:
            applied = Applied(children.workloads())
        else:
            try:
                applied = await self._maker.make(cluster, spec, children, referenced)
            except Leftover as error:
                if self._is_new(resource):
                    return Result(requeue_after=_LEFTOVER_SECONDS)
                applied = nothing_applied(children, Diagnosis(Reason.NAME_CONFLICT, str(error)))
        observed = Observed(
            applied.workloads,
            children.all(POD),
            children.all(REPLICA_SET),
            children.all(CLAIM),
            applied.problems,
            referenced.missing,
            applied.monitoring,
            previous.get("processTable", {}),
            referenced.pull_secrets,
        )
        status_now = paused_status if stopped else status_of
        status = status_now(cluster, spec, generation, observed, previous, self._now())
        await self._write_status(resource, status)
        again = [_PROBLEM_SECONDS] if applied.problems or applied.monitoring or referenced.missing else []
        if applied.changes_at is not None:
            again.append(max(_SOONEST_SECONDS, (applied.changes_at - self._now()).total_seconds()))
        return Result(
            requeue_after=min(again, default=None),
            references=frozenset((each.resource.kind, each.name) for each in wanted),
            readiness=_readiness(status),
        )

    def _is_new(self, resource: Object) -> bool:
        """Whether children of a predecessor may just be on their way out."""
        created = resource["metadata"].get("creationTimestamp")
        return created is None or self._now() - datetime.fromisoformat(created) < _LEFTOVER_PATIENCE

    async def _write_status(self, resource: Object, status: dict[str, Any]) -> None:
        before = own_fields(resource.get("status", {}))
        if status == before:
            return
        cluster = Cluster.of(resource)
        event = event_of_change(cluster, before, status, self._now())
        if event is not None:
            # Before the status: an attempt that fails in between finds its own Event and goes on.
            log.info("%s/%s: %s: %s", cluster.namespace, cluster.name, event["reason"], event["message"])
            try:
                await self._applier.create(EVENT, event)
            except Conflict:
                pass
            except ApiError as error:
                # The status is worth more, and may be written where Events are refused: by a quota, by a policy.
                log.warning("%s/%s: no Event for %s: %s", cluster.namespace, cluster.name, event["reason"], error)
        metadata = {"name": cluster.name, "namespace": cluster.namespace}
        manifest = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "status": status}
        await self._applier.apply_status(AUTELLIX_CLUSTER, manifest)


def _readiness(status: Mapping[str, Any]) -> Readiness:
    found = condition(status, ConditionType.READY)
    return Readiness(found["status"] == "True", found["reason"])
