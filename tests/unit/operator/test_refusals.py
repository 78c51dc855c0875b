"""What the API server refuses is told, and takes nothing else with it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    SECRET,
    SERVICE,
    ApiError,
    Object,
    Refused,
    Resource,
)
from autellix_operator.reconcile import Reconciler, Result
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON, condition, status

Json = Any


async def reconcile(api: MemoryApplier, now: datetime = NOON) -> Result:
    return await Reconciler(api, IMAGES, lambda: now, lambda: "secret").reconcile(KEY)


async def serving(engines: int = 2) -> MemoryApplier:
    """A cluster whose engines serve."""
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({"engine": {"replicas": engines}}))
    await reconcile(api)
    deployment = api.objects[DEPLOYMENT, "space", "demo-engine"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), engines)
    api.put(DEPLOYMENT, deployment | {"status": counts | {"observedGeneration": 1}})
    await reconcile(api)
    assert status(api)["engines"] == f"{engines}/{engines}"
    return api


def refuse(api: MemoryApplier, refused: Callable[[Resource, Object], bool]) -> None:
    original = api.apply

    async def apply(resource: Resource, manifest: Object) -> Object:
        if refused(resource, manifest):
            raise Refused(403, "Forbidden", "no")
        return await original(resource, manifest)

    api.apply = apply  # type: ignore[method-assign]


@pytest.mark.parametrize("refused", ["the engines", "a Secret", "all"])
async def test_engines_that_serve_are_counted_whatever_cannot_be_applied(refused: str) -> None:
    api = await serving()
    kinds = {"the engines": (DEPLOYMENT,), "a Secret": (SECRET,), "all": (DEPLOYMENT, SECRET, SERVICE)}[refused]
    refuse(api, lambda resource, _: resource in kinds)
    api.put(
        AUTELLIX_CLUSTER, api.objects[AUTELLIX_CLUSTER, "space", "demo"] | cluster_resource({"engine": {"replicas": 3}})
    )
    await reconcile(api)
    assert condition(api, "EnginesReady")["reason"] == "ApplyRefused"
    found = status(api)
    assert (found["replicas"], found["readyReplicas"], found["engines"]) == (2, 2, "2/3")


async def test_engines_that_serve_are_counted_beside_the_secret_of_somebody_else() -> None:
    api = await serving()
    secret = api.objects[SECRET, "space", "demo-engine-key"]
    del secret["metadata"]["ownerReferences"]
    api.put(SECRET, secret)
    await reconcile(api)
    assert condition(api, "EnginesReady")["reason"] == "NameConflict"
    assert (status(api)["replicas"], status(api)["engines"]) == (2, "2/2")


@pytest.mark.parametrize("cause", ["a Secret of somebody else", "a predecessor"])
async def test_monitors_that_were_not_looked_at_are_not_said_to_be_there(cause: str) -> None:
    api = await serving()
    resource = cluster_resource({"monitoring": {"monitors": "Enabled"}})
    if cause == "a predecessor":
        resource["metadata"] |= {"uid": "uid-second", "creationTimestamp": "2026-01-02T11:00:00Z"}
    else:
        secret = api.objects[SECRET, "space", "demo-engine-key"]
        del secret["metadata"]["ownerReferences"]
        api.put(SECRET, secret)
    api.put(AUTELLIX_CLUSTER, resource)
    await reconcile(api)
    assert (condition(api, "MonitoringReady")["status"], condition(api, "MonitoringReady")["reason"]) == (
        "False",
        "NameConflict",
    )


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/component": "another"}])
async def test_workloads_of_others_that_carry_our_labels_are_not_counted(labels: Json) -> None:
    api = await serving()
    ours = api.objects[DEPLOYMENT, "space", "demo-engine"]["metadata"]["labels"]
    kept = {name: value for name, value in ours.items() if not name.endswith("component")}
    metadata = {"name": "theirs", "namespace": "space", "labels": kept | labels}
    api.put(DEPLOYMENT, {"metadata": metadata, "spec": {"replicas": 9}})
    await reconcile(api)
    assert status(api)["engines"] == "2/2"


async def test_what_cannot_be_removed_is_told_and_the_rest_goes_on() -> None:
    api = await serving()
    original = api.delete

    async def delete(resource: Resource, namespace: str, name: str, uid: str) -> None:
        if name == "demo-etcd" and resource is DISRUPTION_BUDGET:
            raise Refused(403, "Forbidden", "policy: never")
        await original(resource, namespace, name, uid)

    api.delete = delete  # type: ignore[method-assign]
    api.put(AUTELLIX_CLUSTER, cluster_resource({"processTable": {"etcd": {"endpoints": ["a:1"]}}}))
    result = await reconcile(api)
    assert (DISRUPTION_BUDGET, "space", "demo-etcd") in api.objects
    assert (SERVICE, "space", "demo-etcd") not in api.objects
    found = condition(api, "ProcessTableReady")
    assert (found["reason"], found["status"]) == ("ApplyRefused", "False")
    assert found["message"] == "PodDisruptionBudget demo-etcd is not removed: policy: never"
    assert result.requeue_after is not None


@pytest.mark.parametrize("error", [Refused(403, "Forbidden", "exceeded quota"), ApiError(500, "InternalError", "hook")])
async def test_an_event_that_is_refused_does_not_keep_the_status_from_being_written(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    original = api.create

    async def create(resource: Resource, manifest: Object) -> Object:
        if resource is EVENT:
            raise error
        return await original(resource, manifest)

    api.create = create  # type: ignore[method-assign]
    await reconcile(api)
    assert condition(api, "Ready")["reason"] == "Starting"
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == f"space/demo: no Event for Starting: {error}"
    await reconcile(api)
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1


async def test_a_predecessors_child_that_does_not_go_is_told_after_a_while() -> None:
    api = await serving()
    second = cluster_resource({})
    second["metadata"] |= {"uid": "uid-second", "creationTimestamp": "2026-01-02T12:00:00Z"}
    api.put(AUTELLIX_CLUSTER, second)
    result = await reconcile(api, NOON + timedelta(seconds=5))
    assert result.requeue_after == 2
    assert "status" not in api.objects[AUTELLIX_CLUSTER, "space", "demo"]
    result = await reconcile(api, NOON + timedelta(minutes=1))
    assert result.requeue_after == 30
    found = condition(api, "Ready")
    assert found["reason"] == "NameConflict"
    assert found["message"].startswith("Secret demo-digest-salt of a deleted cluster of the same name is still there")
    assert status(api)["engines"] == "0/1", "engines of the predecessor are not this cluster's"
    api.writes.clear()
    await reconcile(api, NOON + timedelta(minutes=2))
    assert api.writes == []
    for address in [each for each in api.objects if each[0] not in (AUTELLIX_CLUSTER, EVENT)]:
        del api.objects[address]
    await reconcile(api, NOON + timedelta(minutes=3))
    assert condition(api, "Ready")["reason"] == "Starting"
