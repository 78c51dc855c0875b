"""Makes what a spec wants: applies all objects of a cluster, and removes those that are no longer wanted.

One object that cannot be applied keeps no other from it. Each step may run twice.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from autellix_operator.api.conditions import Reason
from autellix_operator.api.names import COMPONENT_LABEL, Cluster, Component, Key
from autellix_operator.api.spec import Spec
from autellix_operator.children import Children, ForeignObject
from autellix_operator.desired.objects import Images, desired_objects
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.held import digests_of
from autellix_operator.keys.engine import ensure_engine_keys
from autellix_operator.keys.salt import ensure_digest_salt
from autellix_operator.kube.applier import (
    CLAIM,
    DEPLOYMENT,
    OPTIONAL,
    POD,
    REPLICA_SET,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ApiError,
    Object,
    Refused,
)
from autellix_operator.newest import newest_revision
from autellix_operator.pods import accounts_in_use
from autellix_operator.references import Referenced
from autellix_operator.retained import claims_in_the_way
from autellix_operator.tls.table import ensure_table_secrets

log = logging.getLogger(__name__)

_WORKLOADS: Final = (DEPLOYMENT.kind, STATEFUL_SET.kind)
_OPTIONAL: Final = tuple(resource.kind for resource in OPTIONAL)


@dataclass(slots=True)
class Applied:
    """What came of applying all objects of a cluster."""

    workloads: dict[Component, Object]
    """As they are then, also where they could not be applied."""
    problems: dict[Component, Diagnosis] = field(default_factory=dict)
    monitoring: Diagnosis | None = None
    changes_at: datetime | None = None
    """When the cluster is to be looked at, since what is wanted changes then by itself."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Applies objects of clusters. Keeps nothing in between."""

    images: Images
    now: Callable[[], datetime]
    new_secret: Callable[[], str]
    """Gives a long random text of printable characters."""
    operator_namespace: str = ""
    """Where the operator runs; empty outside of Kubernetes."""
    refresh_figures: Callable[[Key], Awaitable[object]] | None = None
    """Called before engines are taken away, so that those with the fewest programs go."""

    async def make(self, cluster: Cluster, spec: Spec, children: Children, referenced: Referenced) -> Applied:
        """Brings the objects of a cluster to what its spec wants. Raises InvalidSpec, Leftover or ApiError."""
        applied = Applied(children.workloads())
        etcd = spec.process_table.etcd.managed
        try:
            salt = await ensure_digest_salt(children, cluster, self.new_secret)
            keys = await ensure_engine_keys(children, cluster, self.new_secret, self.now())
            table = await ensure_table_secrets(children, cluster, etcd, self.now()) if etcd else None
        except (ForeignObject, Refused) as error:
            return nothing_applied(children, _diagnosis("Secret", error))
        digests = digests_of(salt.value, table, referenced, applied.workloads)
        applied.changes_at = keys.until
        await self._prepare_scale_down(cluster, spec, applied.workloads.get(Component.ENGINE))
        engines = applied.workloads.get(Component.ENGINE)
        revision = newest_revision(engines, children.all(REPLICA_SET)) if engines else None
        accounts = accounts_in_use(children.all(POD), Component.CONTROLLER)
        desired = desired_objects(cluster, spec, self.images, digests, self.operator_namespace, revision, accounts)
        if in_the_way := etcd and claims_in_the_way(cluster, etcd, children.all(CLAIM)):
            name = cluster.child(Component.ETCD)
            if await children.find(STATEFUL_SET, name) is None:
                applied.problems[Component.ETCD] = in_the_way
                desired = [each for each in desired if each["kind"] != STATEFUL_SET.kind]
        for manifest in desired:
            await _apply(children, manifest, applied)
        kept = [{"kind": SERVICE_ACCOUNT.kind, "metadata": {"name": name}} for name in accounts]
        wanted = [salt.secret, *keys.all, *(table.all if table else ()), *desired, *kept]
        for live, refusal in await children.remove_all_but(wanted):
            message = f"{live['kind']} {live['metadata']['name']} is not removed: {refusal}"
            _note(applied, live, Diagnosis(Reason.APPLY_REFUSED, message[:1000]))
        return applied

    async def _prepare_scale_down(self, cluster: Cluster, spec: Spec, live: Object | None) -> None:
        if self.refresh_figures is None or live is None or live["spec"]["replicas"] <= spec.engine.replicas:
            return
        try:
            await self.refresh_figures(Key(cluster.namespace, cluster.name))
        except ApiError as error:
            log.info("%s/%s: engines are taken away by older figures: %s", cluster.namespace, cluster.name, error)


def nothing_applied(children: Children, problem: Diagnosis) -> Applied:
    """Where one problem keeps all objects from being applied."""
    return Applied(children.workloads(), dict.fromkeys(Component, problem), problem)


async def _apply(children: Children, manifest: dict[str, Any], applied: Applied) -> None:
    kind = manifest["kind"]
    if not children.can_have(kind):
        message = f"Kubernetes has no {kind} ({manifest['apiVersion']}): the Prometheus Operator is not installed"
        applied.monitoring = applied.monitoring or Diagnosis(Reason.API_MISSING, message)
        return
    try:
        live = await children.apply(manifest)
    except (ForeignObject, Refused) as error:
        _note(applied, manifest, _diagnosis(kind, error))
    else:
        if kind in _WORKLOADS:
            applied.workloads[_part(manifest)] = live


def _note(applied: Applied, about: Object, problem: Diagnosis) -> None:
    """Keeps what is wrong with an object; of several of a part the first."""
    if about["kind"] in _OPTIONAL:
        applied.monitoring = applied.monitoring or problem
    else:
        applied.problems.setdefault(_part(about), problem)


def _part(found: Object) -> Component:
    return Component(found["metadata"]["labels"][COMPONENT_LABEL])


def _diagnosis(kind: str, error: ForeignObject | Refused) -> Diagnosis:
    if isinstance(error, ForeignObject):
        return Diagnosis(Reason.NAME_CONFLICT, str(error))
    return Diagnosis(Reason.APPLY_REFUSED, f"{kind}: {error}"[:1000])
