"""Volumes that an earlier process table left: whether the members that are wanted can go on with them."""

from datetime import timedelta
from typing import Any

import pytest

from autellix_operator.kube.applier import AUTELLIX_CLUSTER, CLAIM, DEPLOYMENT, STATEFUL_SET
from autellix_operator.reconcile import Reconciler
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON, condition

Json = Any

LABELS = {
    "app.kubernetes.io/component": "etcd",
    "app.kubernetes.io/managed-by": "autellix-operator",
    "autellix.dev/cluster": "demo",
}


async def reconcile(api: MemoryApplier) -> None:
    await Reconciler(api, IMAGES, lambda: NOON + timedelta(hours=1), lambda: "secret").reconcile(KEY)


def with_claims(members: int, *claims: int, **metadata: Json) -> MemoryApplier:
    api = MemoryApplier()
    etcd = {"managed": {"replicas": members, "whenDeleted": "Retain"}}
    api.put(AUTELLIX_CLUSTER, cluster_resource({"processTable": {"etcd": etcd}}))
    for number in claims:
        named = {"name": f"data-demo-etcd-{number}", "namespace": "space", "labels": LABELS}
        api.put(CLAIM, {"metadata": named | metadata})
    return api


def has_members(api: MemoryApplier) -> bool:
    return (STATEFUL_SET, "space", "demo-etcd") in api.objects


@pytest.mark.parametrize(("members", "claims"), [(1, ()), (1, (0,)), (3, ()), (3, (0, 1, 2))])
async def test_members_start_on_the_volumes_of_as_many(members: int, claims: tuple[int, ...]) -> None:
    api = with_claims(members, *claims)
    await reconcile(api)
    assert has_members(api)


@pytest.mark.parametrize(("members", "claims"), [(3, (0,)), (1, (0, 1, 2)), (3, (0, 2)), (1, (1,))])
async def test_members_that_would_form_another_table_beside_the_retained_one_are_not_started(
    members: int, claims: tuple[int, ...]
) -> None:
    api = with_claims(members, *claims)
    await reconcile(api)
    assert not has_members(api)
    assert (DEPLOYMENT, "space", "demo-engine") in api.objects
    found = condition(api, "ProcessTableReady")
    assert (found["status"], found["reason"]) == ("False", "NameConflict")
    names = ", ".join(f"data-demo-etcd-{number}" for number in claims)
    assert names in found["message"]
    assert f"spec.processTable.etcd.managed.replicas is {members}" in found["message"]
    api.writes.clear()
    await reconcile(api)
    assert api.writes == []
    for number in claims:
        del api.objects[CLAIM, "space", f"data-demo-etcd-{number}"]
    await reconcile(api)
    assert has_members(api)


@pytest.mark.parametrize(
    "going", [{"deletionTimestamp": "2026-01-02T12:00:00Z"}, {"ownerReferences": [{"kind": "StatefulSet", "uid": "u"}]}]
)
async def test_volumes_that_go_with_their_table_are_waited_for(going: Json) -> None:
    api = with_claims(3, 0, **going)
    await reconcile(api)
    assert not has_members(api)
    assert condition(api, "ProcessTableReady")["reason"] == "Starting"
    assert condition(api, "Degraded")["status"] == "False"


async def test_one_volume_that_stays_is_enough_to_ask_for_help() -> None:
    api = with_claims(3, 0)
    metadata = {"name": "data-demo-etcd-1", "namespace": "space", "labels": LABELS}
    api.put(CLAIM, {"metadata": metadata | {"deletionTimestamp": "2026-01-02T12:00:00Z"}})
    await reconcile(api)
    assert condition(api, "ProcessTableReady")["reason"] == "NameConflict"


async def test_members_that_run_are_left_alone() -> None:
    api = with_claims(3)
    await reconcile(api)
    api.put(CLAIM, {"metadata": {"name": "data-demo-etcd-0", "namespace": "space", "labels": LABELS}})
    await reconcile(api)
    assert has_members(api)
    assert condition(api, "ProcessTableReady")["reason"] == "Starting"
    assert condition(api, "Degraded")["status"] == "False"


async def test_claims_of_others_do_not_count() -> None:
    api = with_claims(1)
    api.put(CLAIM, {"metadata": {"name": "data-demo-etcd-0-copy", "namespace": "space", "labels": LABELS}})
    await reconcile(api)
    assert has_members(api)
