"""What the status of a paused cluster says: what is there, against what was applied last."""

from datetime import timedelta
from typing import Any

import pytest

from autellix_operator.kube.applier import AUTELLIX_CLUSTER, DEPLOYMENT, STATEFUL_SET
from autellix_operator.reconcile import Reconciler
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON, condition, status

Json = Any


async def reconcile(api: MemoryApplier) -> None:
    await Reconciler(api, IMAGES, lambda: NOON + timedelta(hours=1), lambda: "secret").reconcile(KEY)


def serve(api: MemoryApplier) -> None:
    """All pods that are wanted are there and ready."""
    for resource in (DEPLOYMENT, STATEFUL_SET):
        for address in [each for each in api.objects if each[0] is resource]:
            workload = api.objects[address]
            replicas = workload["spec"]["replicas"]
            counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), replicas)
            generation = workload["metadata"]["generation"]
            api.put(resource, workload | {"status": counts | {"observedGeneration": generation}})


def pause(api: MemoryApplier, spec: Json) -> None:
    resource = cluster_resource(spec)
    resource["metadata"]["annotations"] = {"autellix.dev/paused": "true"}
    api.put(AUTELLIX_CLUSTER, resource | {"status": status(api)})


async def applied(spec: Json, *absent: str) -> MemoryApplier:
    api = MemoryApplier()
    api.absent.update(absent)
    api.put(AUTELLIX_CLUSTER, cluster_resource(spec))
    await reconcile(api)
    serve(api)
    await reconcile(api)
    assert condition(api, "Ready")["status"] == "True"
    return api


def without_progress(found: Json) -> Json:
    return found | {"conditions": [each for each in found["conditions"] if each["type"] != "Progressing"]}


CHANGES: list[tuple[Json, Json]] = [
    ({}, {"engine": {"replicas": 5}}),
    ({}, {"controller": {"service": {"port": 8080}}}),
    ({}, {"processTable": {"etcd": {"endpoints": ["a:1"]}}}),
    ({"processTable": {"etcd": {"endpoints": ["a:1"]}}}, {}),
    ({}, {"controller": {"apiKeysSecretRef": {"name": "no-such"}}}),
    ({"monitoring": {"monitors": "Enabled"}}, {}),
    ({}, {"monitoring": {"monitors": "Enabled"}}),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
async def test_a_spec_that_waits_is_not_what_the_status_speaks_of(before: Json, after: Json) -> None:
    api = await applied(before)
    said = status(api)
    pause(api, after)
    await reconcile(api)
    assert without_progress(status(api)) == without_progress(said)
    assert condition(api, "Progressing")["reason"] == "Paused"


@pytest.mark.parametrize("after", [{}, {"engine": {"replicas": 5}}])
async def test_what_monitoring_lacks_is_not_forgotten(after: Json) -> None:
    wanted = {"monitoring": {"monitors": "Enabled"}}
    api = await applied(wanted, "monitoring.coreos.com/v1")
    said = condition(api, "MonitoringReady")
    assert said["reason"] == "ApiMissing"
    pause(api, wanted | after)
    await reconcile(api)
    assert condition(api, "MonitoringReady") == said


async def test_engines_that_fail_meanwhile_are_told() -> None:
    api = await applied({"engine": {"replicas": 2}})
    pause(api, {"engine": {"replicas": 5}})
    engines = api.objects[DEPLOYMENT, "space", "demo-engine"]
    engines["status"]["readyReplicas"] = 1
    api.put(DEPLOYMENT, engines)
    await reconcile(api)
    assert status(api)["engines"] == "1/2"
    assert condition(api, "EnginesReady")["status"] == "False"


async def test_a_cluster_that_is_paused_from_the_start_says_so() -> None:
    api = MemoryApplier()
    resource = cluster_resource({"monitoring": {"monitors": "Enabled"}})
    resource["metadata"]["annotations"] = {"autellix.dev/paused": "true"}
    api.put(AUTELLIX_CLUSTER, resource)
    await reconcile(api)
    assert condition(api, "Progressing")["reason"] == "Paused"
    assert condition(api, "EnginesReady")["status"] == "False"
    assert condition(api, "MonitoringReady") is None
    assert status(api)["engines"] == "0/1"
