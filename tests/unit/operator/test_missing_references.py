"""What becomes of pods that serve when an object behind their contents goes."""

import copy
from typing import Any

import pytest

from autellix_operator.api.spec import parse_spec
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, CONFIG_MAP, DEPLOYMENT, SECRET, Resource
from autellix_operator.reconcile import Reconciler
from autellix_operator.references import look_up, references
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON, condition

Json = Any


ENVIRONMENT = {
    "engine": {
        "env": [
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "store", "key": "password"}}},
            {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "common", "key": "level"}}},
        ]
    }
}
ELSEWHERE = {
    "processTable": {
        "etcd": {
            "endpoints": ["etcd.example:2379"],
            "user": "autellix",
            "passwordSecretRef": {"name": "store", "key": "password"},
            "tls": {"caSecretRef": {"name": "authority", "key": "ca.crt"}},
        }
    }
}
STORE = {"metadata": {"name": "store", "namespace": "space"}, "data": {"password": "Zmlyc3Q="}}
AUTHORITY = {"metadata": {"name": "authority", "namespace": "space"}, "data": {"ca.crt": "eA=="}}
COMMON = {"metadata": {"name": "common", "namespace": "space"}, "data": {"level": "low"}}


async def reconcile(api: MemoryApplier) -> None:
    await Reconciler(api, IMAGES, lambda: NOON, lambda: "salt").reconcile(KEY)


def templates(api: MemoryApplier) -> Json:
    names = ("demo-engine", "demo-controller")
    return copy.deepcopy([api.objects[DEPLOYMENT, "space", name]["spec"]["template"] for name in names])


def all_there(spec: Json) -> MemoryApplier:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource(spec))
    api.put(SECRET, copy.deepcopy(STORE))
    api.put(SECRET, copy.deepcopy(AUTHORITY))
    api.put(CONFIG_MAP, copy.deepcopy(COMMON))
    return api


@pytest.mark.parametrize(
    ("spec", "resource", "name", "reason"),
    [
        (ENVIRONMENT, SECRET, "store", "SecretMissing"),
        (ENVIRONMENT, CONFIG_MAP, "common", "ConfigMapMissing"),
        (ELSEWHERE, SECRET, "store", "SecretMissing"),
        (ELSEWHERE, SECRET, "authority", "SecretMissing"),
    ],
)
@pytest.mark.parametrize("how", ["deleted", "without its key"])
async def test_pods_that_serve_are_not_replaced_by_ones_that_could_not_start(
    spec: Json, resource: Resource, name: str, reason: str, how: str
) -> None:
    api = all_there(spec)
    await reconcile(api)
    before, gone = templates(api), api.objects.pop((resource, "space", name))
    if how != "deleted":
        api.put(resource, {"metadata": {"name": name, "namespace": "space"}, "data": {"other": "eA=="}})
    await reconcile(api)
    assert templates(api) == before
    part = "EnginesReady" if spec is ENVIRONMENT else "ControllerReady"
    assert condition(api, part)["reason"] == reason
    api.put(resource, gone)
    await reconcile(api)
    assert templates(api) == before, "it is back as it was"
    changed = dict.fromkeys(gone["data"], "YW5vdGhlcg==")
    api.put(resource, gone | {"data": changed})
    await reconcile(api)
    assert templates(api) != before


async def test_a_change_of_one_object_waits_for_another_that_is_missing() -> None:
    api = all_there(ENVIRONMENT)
    await reconcile(api)
    before, store = templates(api), api.objects.pop((SECRET, "space", "store"))
    api.put(CONFIG_MAP, COMMON | {"data": {"level": "high"}})
    await reconcile(api)
    assert templates(api) == before
    api.put(SECRET, store)
    await reconcile(api)
    assert templates(api) != before


async def test_pods_that_never_had_an_object_start_anew_when_it_comes() -> None:
    api = all_there(ENVIRONMENT)
    store = api.objects.pop((SECRET, "space", "store"))
    await reconcile(api)
    before = templates(api)
    api.put(SECRET, store)
    await reconcile(api)
    engine, controller = templates(api)
    assert engine != before[0]
    assert controller == before[1]


async def test_pull_secrets_are_looked_up_and_waited_for_by_nobody() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({"imagePullSecrets": [{"name": "here"}, {"name": "gone"}]}))
    api.put(SECRET, {"metadata": {"name": "here", "namespace": "space"}})
    result = await Reconciler(api, IMAGES, lambda: NOON, lambda: "salt").reconcile(KEY)
    assert result.requeue_after is None
    assert result.references == {("Secret", "here"), ("Secret", "gone")}
    assert condition(api, "Ready")["reason"] == "Starting"
    found = await look_up(api, "space", references(parse_spec(api.objects[AUTELLIX_CLUSTER, "space", "demo"])))
    assert found.missing == {}
    assert found.pull_secrets is not None
    assert found.pull_secrets.message == "spec.imagePullSecrets: there is no Secret gone"
