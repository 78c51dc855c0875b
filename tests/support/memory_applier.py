"""An Applier over a dictionary: as much of the API server as reconciles can tell from the real one.

Fields of a manifest are made so, fields of the manifest before that are no longer in it are removed, other fields
stay; an apply that changes nothing writes nothing.
"""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from autellix_operator.kube.applier import AUTELLIX_CLUSTER, DEPLOYMENT, ApiError, Conflict, NotFound, Object, Resource

Json = Any
Address = tuple[Resource, str, str]


class MemoryApplier:
    """The store. ``writes`` lists what was written, in order; ``failures`` are raised by the next calls, in order;
    after ``writes_left`` writes one more fails (None: never); ``absent`` are versions of APIs that it does not have."""

    def __init__(self) -> None:
        self.objects: dict[Address, dict[str, Json]] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.failures: list[ApiError] = []
        self.writes_left: int | None = None
        self.absent: set[str] = set()
        self._applied: dict[tuple[Address, str], Json] = {}
        self._numbers = itertools.count(1)
        self._versions = itertools.count(1)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        self._maybe_fail()
        try:
            return copy.deepcopy(self.objects[resource, namespace, name])
        except KeyError:
            raise NotFound(404, "NotFound", f"{resource.plural} {name} not found") from None

    async def list(self, resource: Resource, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        self._maybe_fail()
        return [
            copy.deepcopy(found)
            for (kind, place, _), found in self.objects.items()
            if kind == resource and place == namespace
            if labels.items() <= found["metadata"].get("labels", {}).items()
        ]

    async def serves(self, resource: Resource) -> bool:
        return resource.api_version not in self.absent

    async def create(self, resource: Resource, manifest: Object) -> Object:
        self._maybe_fail()
        address = resource, manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        if address in self.objects:
            raise Conflict(409, "AlreadyExists", f"{address} exists")
        return self._store("create", address, copy.deepcopy(dict(manifest)))

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        return self._apply(resource, manifest, "object")

    async def apply_status(self, resource: Resource, manifest: Object) -> Object:
        return self._apply(resource, manifest, "status")

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        self._maybe_fail()
        address = resource, manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        live = self.objects.get(address)
        if live is None:
            raise NotFound(404, "NotFound", f"{address} not found")
        if live["metadata"].get("resourceVersion") != manifest["metadata"].get("resourceVersion"):
            raise Conflict(409, "Conflict", f"{address} has changed")
        return self._store("replace", address, copy.deepcopy(dict(manifest)))

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        self._maybe_fail()
        found = self.objects.get((resource, namespace, name))
        if found is not None and found["metadata"]["uid"] == uid:
            del self.objects[resource, namespace, name]
            self._applied.pop(((resource, namespace, name), "object"), None)
            self.writes.append(("delete", resource.kind, name))

    def put(self, resource: Resource, manifest: dict[str, Json]) -> dict[str, Json]:
        """Stores an object as somebody else would; not a write of ours."""
        address = resource, manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        stored = self._store("put", address, manifest)
        self.writes.pop()
        return stored

    def pod_templates(self) -> Json:
        """Those of all Deployments, as they are now."""
        found = (each for address, each in self.objects.items() if address[0] is DEPLOYMENT)
        return copy.deepcopy([each["spec"]["template"] for each in found])

    def _apply(self, resource: Resource, manifest: Object, part: str) -> Object:
        self._maybe_fail()
        address = resource, manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        intent = copy.deepcopy(dict(manifest))
        live = copy.deepcopy(self.objects.get(address, {}))
        if part == "status" and not live:
            raise NotFound(404, "NotFound", f"{address} not found")
        before = self._applied.get((address, part), {})
        merged = _merge(_without(live, before, intent), intent)
        self._applied[address, part] = copy.deepcopy(intent)
        if merged == self.objects.get(address):
            return copy.deepcopy(merged)
        return self._store(f"apply {part}", address, merged)

    def _store(self, verb: str, address: Address, found: dict[str, Json]) -> dict[str, Json]:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                self.writes_left = None
                raise ApiError(503, "Unavailable", "gone")
        resource, _, name = address
        before = self.objects.get(address, {})
        metadata = found["metadata"]
        metadata.setdefault("uid", f"uid-{next(self._numbers)}")
        changed = before.get("spec") != found.get("spec")
        metadata["resourceVersion"] = str(next(self._versions))
        metadata["generation"] = before.get("metadata", {}).get("generation", 0) + changed
        found.setdefault("apiVersion", resource.api_version)
        found.setdefault("kind", resource.kind)
        self.objects[address] = found
        self.writes.append((verb, resource.kind, name))
        return copy.deepcopy(found)

    def _maybe_fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def _merge(live: Json, intent: Json) -> Json:
    if not isinstance(live, dict) or not isinstance(intent, dict):
        return intent
    return live | {name: _merge(live.get(name), value) for name, value in intent.items()}


def _without(live: Json, before: Json, intent: Json) -> Json:
    """``live`` without the fields that were applied before and are not intended any more."""
    if not isinstance(live, dict) or not isinstance(before, dict) or not isinstance(intent, dict):
        return live
    return {
        name: _without(value, before.get(name), intent.get(name)) if name in intent else value
        for name, value in live.items()
        if name in intent or name not in before
    }


def cluster_resource(spec: dict[str, Json], name: str = "demo", namespace: str = "space") -> dict[str, Json]:
    """A live AutellixCluster."""
    return {
        "apiVersion": AUTELLIX_CLUSTER.api_version,
        "kind": AUTELLIX_CLUSTER.kind,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"model": {"name": "tiny"}, **spec},
    }
