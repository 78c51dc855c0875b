"""One reconcile: from what is, whatever woke us, to what the spec wants.

The same function serves creation, change, drift, restart of the operator and change of a child. It reads the resource
and its children, applies all desired objects, removes children that are no longer desired, and writes the status.
Each step may run twice. A reconcile that finds everything in place writes nothing. Deletion needs no step of ours:
every object has an owner reference, and volume claims belong to their StatefulSet, so Kubernetes' garbage collection
removes all, with or without a running operator.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from autellix_operator.api.conditions import Reason
from autellix_operator.api.names import COMPONENT_LABEL, ENGINE_KEY, Cluster, Component, Key
from autellix_operator.api.spec import GROUP, KIND, VERSION, InvalidSpec, Spec, parse_spec
from autellix_operator.children import Children, ForeignObject, Leftover
from autellix_operator.desired.objects import Images, desired_objects
from autellix_operator.desired.secrets import engine_key_metadata, engine_key_secret, has_key, key_digest
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.events import event_of_change
from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    CLAIM,
    DEPLOYMENT,
    EVENT,
    POD,
    REPLICA_SET,
    SECRET,
    STATEFUL_SET,
    Applier,
    Conflict,
    NotFound,
    Object,
    Refused,
)
from autellix_operator.status import Observed, invalid_status, status_of

log = logging.getLogger(__name__)

#: A predecessor's objects are being removed: look again soon.
_LEFTOVER_SECONDS: Final = 2.0
#: What is refused now may be accepted later, without anything that would wake us.
_PROBLEM_SECONDS: Final = 30.0
_WORKLOADS: Final = (DEPLOYMENT.kind, STATEFUL_SET.kind)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile leaves to its caller."""

    requeue_after: float | None = None
    """Seconds after which to look again at the latest; None: when something changes, or at the next resync."""
    secrets: frozenset[str] = frozenset()
    """Names of the Secrets that the spec refers to: a change of one of them is a change for this cluster."""
    exists: bool = True
    """False: the resource is gone."""


class Reconciler:
    """Reconciles clusters. Keeps no state between two reconciles.

    ``now`` gives the time, ``new_engine_key`` a long random key in printable characters.
    """

    def __init__(
        self, applier: Applier, images: Images, now: Callable[[], datetime], new_engine_key: Callable[[], str]
    ) -> None:
        self._applier = applier
        self._images = images
        self._now = now
        self._new_engine_key = new_engine_key

    async def reconcile(self, key: Key) -> Result:
        """Brings one cluster to what its spec wants. Raises ApiError: then it is to be tried again."""
        try:
            resource = await self._applier.get(AUTELLIX_CLUSTER, key.namespace, key.name)
        except NotFound:
            return Result(exists=False)
        if "deletionTimestamp" in resource["metadata"]:
            return Result()
        try:
            return await self._reconcile(resource, parse_spec(resource))
        except InvalidSpec as error:
            generation, previous = resource["metadata"]["generation"], resource.get("status", {})
            await self._write_status(resource, invalid_status(str(error), generation, previous, self._now()))
            return Result()
        except Leftover:
            return Result(requeue_after=_LEFTOVER_SECONDS)

    async def _reconcile(self, resource: Object, spec: Spec) -> Result:
        cluster = Cluster.of(resource)
        children = await Children.read(self._applier, cluster)
        problems = await self._missing_secrets(cluster, spec)
        workloads: dict[Component, Object] = {}
        try:
            secret = await self._engine_key(cluster, children)
        except (ForeignObject, Refused) as error:
            problems |= dict.fromkeys((Component.ENGINE, Component.CONTROLLER), _diagnosis("Secret", error))
        else:
            desired = desired_objects(cluster, spec, self._images, key_digest(secret))
            for manifest in desired:
                component = Component(manifest["metadata"]["labels"][COMPONENT_LABEL])
                try:
                    live = await children.apply(manifest)
                except (ForeignObject, Refused) as error:
                    problems[component] = _diagnosis(manifest["kind"], error)
                else:
                    if manifest["kind"] in _WORKLOADS:
                        workloads[component] = live
            await children.remove_all_but([secret, *desired])
        observed = Observed(workloads, children.all(POD), children.all(REPLICA_SET), children.all(CLAIM), problems)
        generation, previous = resource["metadata"]["generation"], resource.get("status", {})
        await self._write_status(resource, status_of(cluster, spec, generation, observed, previous, self._now()))
        return Result(
            requeue_after=_PROBLEM_SECONDS if problems else None,
            secrets=frozenset(each.name for each in _references(spec)),
        )

    async def _engine_key(self, cluster: Cluster, children: Children) -> Object:
        live = await children.find(SECRET, cluster.engine_key_secret)
        if live is not None and not has_key(live, ENGINE_KEY):
            await self._applier.delete(SECRET, cluster.namespace, cluster.engine_key_secret, live["metadata"]["uid"])
            live = None
        if live is None:
            await self._applier.create(SECRET, engine_key_secret(cluster, self._new_engine_key()))
        # Holds labels and owner; the key, which is not ours to apply, stays what it is.
        applied = await self._applier.apply(SECRET, engine_key_metadata(cluster))
        if not has_key(applied, ENGINE_KEY):
            raise Conflict(409, "Conflict", f"Secret {cluster.engine_key_secret} was removed meanwhile")
        return applied

    async def _missing_secrets(self, cluster: Cluster, spec: Spec) -> dict[Component, Diagnosis]:
        problems = {}
        for reference in _references(spec):
            try:
                secret = await self._applier.get(SECRET, cluster.namespace, reference.name)
            except NotFound:
                problem = f"{reference.field}: there is no Secret {reference.name}"
            else:
                if has_key(secret, reference.key):
                    continue
                problem = f"{reference.field}: Secret {reference.name} has no key {reference.key}"
            problems[reference.component] = Diagnosis(Reason.SECRET_MISSING, problem)
        return problems

    async def _write_status(self, resource: Object, status: dict[str, Any]) -> None:
        before = resource.get("status", {})
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


@dataclass(frozen=True, slots=True)
class _Reference:
    """A Secret that the spec refers to, and the part that needs it."""

    component: Component
    field: str
    name: str
    key: str


def _references(spec: Spec) -> list[_Reference]:
    found = []
    if token := spec.model.token_secret_ref:
        found.append(_Reference(Component.ENGINE, "spec.model.tokenSecretRef", token.name, token.key))
    if keys := spec.controller.api_keys_secret_ref:
        found.append(_Reference(Component.CONTROLLER, "spec.controller.apiKeysSecretRef", keys.name, keys.key))
    return found


def _diagnosis(kind: str, error: ForeignObject | Refused) -> Diagnosis:
    if isinstance(error, ForeignObject):
        return Diagnosis(Reason.NAME_CONFLICT, str(error))
    return Diagnosis(Reason.APPLY_REFUSED, f"{kind}: {error}"[:1000])
