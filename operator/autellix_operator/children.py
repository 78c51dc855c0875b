"""The live children of one cluster: whose they are, how they are written, which of them have to go."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from autellix_operator.api.names import Cluster, Component, Key
from autellix_operator.api.spec import KIND
from autellix_operator.applied import AppliedBefore
from autellix_operator.kube.applier import (
    DEPLOYMENT,
    OBSERVED,
    OPTIONAL,
    OWNED,
    PERMANENT,
    STATEFUL_SET,
    Applier,
    NotFound,
    Object,
    Refused,
    Resource,
)

_WORKLOADS: Final = {
    Component.ENGINE: DEPLOYMENT,
    Component.CONTROLLER: DEPLOYMENT,
    Component.ETCD: STATEFUL_SET,
}
_RESOURCES: Final = {resource.kind: resource for resource in (*OWNED, *OPTIONAL)}


class ForeignObject(Exception):
    """An object that is not ours has a name that we need."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name} exists and does not belong to this cluster: rename the cluster, or remove it")


class Leftover(Exception):
    """An object of a deleted cluster of the same name is still there; garbage collection will remove it."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} {name} of a deleted cluster of the same name is still there: if it does not go, see its finalizers"
        )


class Children:
    """The children of a cluster as they were when they were read, and the ways to change them."""

    def __init__(
        self,
        applier: Applier,
        cluster: Cluster,
        found: dict[Resource, dict[str, Object]],
        before: AppliedBefore,
    ) -> None:
        self._applier = applier
        self._cluster = cluster
        self._found = found
        self._before = before
        self._key = Key(cluster.namespace, cluster.name)

    @classmethod
    async def read(cls, applier: Applier, cluster: Cluster, before: AppliedBefore) -> "Children":
        """Reads them by their labels."""
        labels = cluster.selector_of_all()
        resources = [*OWNED, *OBSERVED]
        resources += [each for each in OPTIONAL if await applier.serves(each)]
        lists = await asyncio.gather(*(applier.list(each, cluster.namespace, labels) for each in resources))
        found: dict[Resource, dict[str, Object]] = {
            # The items of a list do not say what they are.
            resource: {
                item["metadata"]["name"]: {"apiVersion": resource.api_version, "kind": resource.kind, **item}
                for item in items
            }
            for resource, items in zip(resources, lists, strict=True)
        }
        return cls(applier, cluster, found, before)

    def all(self, resource: Resource) -> list[Object]:
        """The objects of one kind that carry our labels."""
        return list(self._found[resource].values())

    def workloads(self) -> dict[Component, Object]:
        """Our Deployments and our StatefulSet, by the part that they are."""
        found = {part: self._found[each].get(self._cluster.child(part)) for part, each in _WORKLOADS.items()}
        return {part: live for part, live in found.items() if live is not None and self._is_ours(live)}

    def can_have(self, kind: str) -> bool:
        """Whether the API server has this kind of object, one of those that we make."""
        return _RESOURCES[kind] in self._found

    async def find(self, resource: Resource, name: str) -> Object | None:
        """Our object of this name; None if there is none. Raises ForeignObject or Leftover if another has the name."""
        live = self._found[resource].get(name)
        if live is None:
            try:
                # An object without our labels is not in the list, and still has the name.
                live = await self._applier.get(resource, self._cluster.namespace, name)
            except NotFound:
                return None
        if self._is_ours(live):
            return live
        owner = _controller(live)
        if owner.get("kind") == KIND and owner.get("name") == self._cluster.name:
            raise Leftover(resource.kind, name)
        raise ForeignObject(resource.kind, name)

    async def make_anew(self, live: Object | None, manifest: dict[str, Any]) -> Object:
        """Makes an object in the place of ``live``, with content that is never applied. Raises ApiError."""
        resource, name = _RESOURCES[manifest["kind"]], manifest["metadata"]["name"]
        if live is not None:
            await self._applier.delete(resource, self._cluster.namespace, name, live["metadata"]["uid"])
        made = await self._applier.create(resource, manifest)
        self._found[resource][name] = made
        return made

    async def apply(self, manifest: dict[str, Any]) -> Object:
        """Applies an object; gives it as it is then. Raises ForeignObject, Leftover or ApiError."""
        resource = _RESOURCES[manifest["kind"]]
        live = await self.find(resource, manifest["metadata"]["name"])
        if live is not None and self._before.is_current(self._key, live, manifest):
            return live
        applied = await self._applier.apply(resource, manifest)
        self._before.remember(self._key, applied, manifest)
        return applied

    async def remove_all_but(self, desired: Iterable[Object]) -> list[tuple[Object, Refused]]:
        """Removes our objects that are not desired (any more); gives those of which the removal was refused. Raises
        other kinds of ApiError."""
        wanted = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in desired}
        refused: list[tuple[Object, Refused]] = []
        for resource in _RESOURCES.values():
            if resource in PERMANENT:
                continue
            for name, live in self._found.get(resource, {}).items():
                metadata = live["metadata"]
                if (resource.kind, name) in wanted or "deletionTimestamp" in metadata or not self._is_ours(live):
                    continue
                try:
                    await self._applier.delete(resource, self._cluster.namespace, name, metadata["uid"])
                except Refused as error:
                    refused.append((live, error))
        return refused

    def _is_ours(self, live: Object) -> bool:
        return bool(_controller(live).get("uid") == self._cluster.uid)


def _controller(live: Object) -> Object:
    owners = live["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})
