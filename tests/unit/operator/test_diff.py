"""What `autellix-operator diff` tells, above all where a reconcile would change nothing or not all."""

import copy
from datetime import timedelta
from typing import Any

import pytest

from autellix_operator.api.base import InvalidSpec
from autellix_operator.diff import Difference, difference
from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    DEPLOYMENT,
    SECRET,
    SERVICE,
    NotFound,
    Object,
    Refused,
    Resource,
)
from autellix_operator.maker import Maker
from autellix_operator.reconcile import Reconciler
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON

Json = Any


class Dry(MemoryApplier):
    """Applies to a copy."""

    def __init__(self, api: MemoryApplier) -> None:
        super().__init__()
        self.objects, self._applied = copy.deepcopy(api.objects), copy.deepcopy(api._applied)


async def live() -> MemoryApplier:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    for _ in range(2):
        await Reconciler(api, IMAGES, lambda: NOON, lambda: "secret").reconcile(KEY)
    return api


def change(api: MemoryApplier, spec: Json, **metadata: Json) -> None:
    resource = cluster_resource(spec)
    resource["metadata"] |= metadata
    api.put(AUTELLIX_CLUSTER, resource)


async def shown(api: MemoryApplier, dry: Dry | None = None) -> Difference:
    maker = Maker(IMAGES, lambda: NOON + timedelta(hours=1), lambda: "secret")
    return await difference(dry or Dry(api), maker, KEY)


async def test_of_a_cluster_at_rest_nothing_is_shown() -> None:
    assert await shown(await live()) == Difference([], [])


async def test_of_a_paused_cluster_it_is_shown_what_would_change_without_the_pause() -> None:
    api = await live()
    change(api, {"engine": {"replicas": 5}}, annotations={"autellix.dev/paused": "true"})
    found = await shown(api)
    assert "+  replicas: 5\n" in "".join(found.changes)
    assert found.problems == []
    assert found.notes == ["the cluster is paused: this is what would change once the annotation is gone"]


async def test_a_spec_that_is_not_valid_is_told() -> None:
    api = await live()
    change(api, {"engine": {"replicas": -1}})
    with pytest.raises(InvalidSpec, match=r"spec\.engine\.replicas"):
        await shown(api)


async def test_a_cluster_that_is_gone_or_going_is_told() -> None:
    api = await live()
    change(api, {}, deletionTimestamp="2026-01-02T12:00:00Z")
    assert (await shown(api)).problems == ["the cluster is being deleted: nothing of it is changed"]
    with pytest.raises(NotFound):
        await shown(MemoryApplier())


async def test_what_the_server_refuses_is_told_beside_what_would_change() -> None:
    api = await live()
    change(api, {"engine": {"replicas": 5}, "controller": {"replicas": 5}})

    class Refusing(Dry):
        async def apply(self, resource: Resource, manifest: Object) -> Object:
            if resource is DEPLOYMENT and manifest["metadata"]["name"] == "demo-engine":
                raise Refused(422, "Invalid", "spec.template: bad")
            return await super().apply(resource, manifest)

    found = await shown(api, Refusing(api))
    assert found.problems == ["engine: ApplyRefused: Deployment: spec.template: bad"]
    assert "+  replicas: 5\n" in "".join(found.changes)


async def test_the_object_of_somebody_else_is_told() -> None:
    api = await live()
    service = api.objects[SERVICE, "space", "demo"]
    del service["metadata"]["ownerReferences"]
    api.put(SERVICE, service)
    (problem,) = (await shown(api)).problems
    assert problem.startswith("controller: NameConflict: Service demo exists")


async def test_one_problem_of_all_parts_is_told_once() -> None:
    api = await live()
    secret = api.objects[SECRET, "space", "demo-engine-key"]
    del secret["metadata"]["ownerReferences"]
    api.put(SECRET, secret)
    (problem,) = (await shown(api)).problems
    assert problem.startswith("engine, controller, etcd, monitoring: NameConflict: Secret demo-engine-key exists")


async def test_a_missing_monitoring_api_is_told() -> None:
    api = await live()
    change(api, {"monitoring": {"monitors": "Enabled"}})
    dry = Dry(api)
    dry.absent.add("monitoring.coreos.com/v1")
    (problem,) = (await shown(api, dry)).problems
    assert problem.startswith("monitoring: ApiMissing: ")


async def test_children_of_a_predecessor_are_told_at_once() -> None:
    api = await live()
    change(api, {}, uid="uid-second")
    (problem,) = (await shown(api)).problems
    assert "demo-digest-salt of a deleted cluster" in problem
