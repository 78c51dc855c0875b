"""What a reconcile would change: intended against live, for people.

The API server itself says what an apply would lead to, by a dry run: defaults, quantities and fields of others are
the same on both sides, so what is shown is what would change. Nothing is written. A pause is not heeded: whoever has
paused a cluster wants to know what would happen without it.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from autellix_operator.api.names import Cluster, Key
from autellix_operator.api.spec import parse_spec
from autellix_operator.applied import AppliedBefore
from autellix_operator.children import Children, Leftover
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, SECRET, Applier, NotFound, Object, Resource
from autellix_operator.maker import Applied, Maker
from autellix_operator.pause import is_paused
from autellix_operator.references import look_up, references

#: Set by the server with every write.
_BOOKKEEPING: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Difference:
    """What a reconcile would change of a cluster."""

    changes: list[str]
    """A unified diff for each object."""
    problems: list[str]
    """What it would not get done, and why: then ``changes`` are not all that the spec asks for."""
    notes: list[str] = field(default_factory=list)


async def difference(dry: Applier, maker: Maker, key: Key) -> Difference:
    """What a reconcile would change. ``dry`` must be an Applier whose writes are dry runs. Raises InvalidSpec,
    NotFound or another ApiError."""
    resource = await dry.get(AUTELLIX_CLUSTER, key.namespace, key.name)
    if "deletionTimestamp" in resource["metadata"]:
        return Difference([], ["the cluster is being deleted: nothing of it is changed"])
    spec, cluster, applier = parse_spec(resource), Cluster.of(resource), DiffApplier(dry)
    children = await Children.read(applier, cluster, AppliedBefore())
    try:
        applied = await maker.make(cluster, spec, children, await look_up(applier, cluster.namespace, references(spec)))
    except Leftover as error:
        return Difference(applier.changes, [str(error)])
    paused = ["the cluster is paused: this is what would change once the annotation is gone"]
    return Difference(applier.changes, _problems(applied), paused if is_paused(resource) else [])


def _problems(applied: Applied) -> list[str]:
    parts: dict[Diagnosis, list[str]] = {}
    for component, problem in applied.problems.items():
        parts.setdefault(problem, []).append(component)
    if applied.monitoring is not None:
        parts.setdefault(applied.monitoring, []).append("monitoring")
    return [f"{', '.join(who)}: {problem.reason}: {problem.message}" for problem, who in parts.items()]


class DiffApplier:
    """An Applier that reads the live objects and only notes what would be written.

    ``dry`` must be an Applier whose writes are dry runs.
    """

    def __init__(self, dry: Applier) -> None:
        self._dry = dry
        self._made: dict[tuple[Resource, str], Object] = {}
        self.changes: list[str] = []
        """A unified diff for each object that would change, in the order of the reconcile."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """See Applier."""
        if (made := self._made.get((resource, name))) is not None:
            return made
        return await self._dry.get(resource, namespace, name)

    async def list(self, resource: Resource, namespace: str, labels: Mapping[str, str]) -> "list[Object]":
        """See Applier."""
        return await self._dry.list(resource, namespace, labels)

    async def serves(self, resource: Resource) -> bool:
        """See Applier."""
        return await self._dry.serves(resource)

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """See Applier."""
        self._note(resource, manifest["metadata"]["name"], None, manifest)
        self._made[resource, manifest["metadata"]["name"]] = manifest
        return manifest

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        """See Applier."""
        name = manifest["metadata"]["name"]
        if (made := self._made.get((resource, name))) is not None:
            return made
        try:
            live: Object | None = await self._dry.get(resource, manifest["metadata"]["namespace"], name)
        except NotFound:
            live = None
        after = await self._dry.apply(resource, manifest)
        self._note(resource, name, live, after)
        return after

    async def apply_status(self, resource: Resource, manifest: Object) -> Object:
        """See Applier. The status says what is, not what is intended."""
        return manifest

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """See Applier. Not used by reconciles."""
        return manifest

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """See Applier."""
        self._note(resource, name, await self._dry.get(resource, namespace, name), None)

    def _note(self, resource: Resource, name: str, before: Object | None, after: Object | None) -> None:
        lines = difflib.unified_diff(
            _text(resource, before),
            _text(resource, after),
            f"live {resource.kind}/{name}" if before else "/dev/null",
            f"intended {resource.kind}/{name}" if after else "/dev/null",
        )
        if difference := "".join(lines):
            self.changes.append(difference)


def _text(resource: Resource, found: Object | None) -> list[str]:
    if found is None:
        return []
    shown: dict[str, Any] = json.loads(json.dumps(found))
    shown.pop("status", None)
    for name in _BOOKKEEPING:
        shown["metadata"].pop(name, None)
    shown["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    if resource == SECRET:
        for part in ("data", "stringData"):
            shown[part] = dict.fromkeys(shown.get(part) or {}, "(not shown)")
    return yaml.safe_dump(shown, sort_keys=True).splitlines(keepends=True)
