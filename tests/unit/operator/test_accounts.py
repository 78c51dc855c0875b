"""Accounts of controllers: those of pods that still run keep their rights until they are gone."""

from typing import Any

from autellix_operator.kube.applier import AUTELLIX_CLUSTER, POD, ROLE_BINDING, SERVICE_ACCOUNT
from autellix_operator.reconcile import Reconciler
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON

Json = Any


async def reconcile(api: MemoryApplier) -> None:
    await Reconciler(api, IMAGES, lambda: NOON, lambda: "secret").reconcile(KEY)


def use(api: MemoryApplier, account: str | None) -> None:
    api.put(AUTELLIX_CLUSTER, cluster_resource({"controller": {"serviceAccountName": account} if account else {}}))


def run_controller(api: MemoryApplier, account: str, component: str = "controller") -> None:
    labels = {
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "autellix-operator",
        "autellix.dev/cluster": "demo",
    }
    metadata = {"name": f"pod-of-{account}", "namespace": "space", "labels": labels}
    api.put(POD, {"metadata": metadata, "spec": {"serviceAccountName": account}})


def allowed(api: MemoryApplier) -> list[str]:
    return [each["name"] for each in api.objects[ROLE_BINDING, "space", "demo-controller"]["subjects"]]


async def test_controllers_find_engines_until_their_successors_with_another_account_have_come() -> None:
    api = MemoryApplier()
    use(api, None)
    await reconcile(api)
    assert allowed(api) == ["demo-controller"]
    run_controller(api, "demo-controller")
    use(api, "theirs")
    await reconcile(api)
    assert allowed(api) == ["demo-controller", "theirs"]
    assert (SERVICE_ACCOUNT, "space", "demo-controller") in api.objects
    api.writes.clear()
    await reconcile(api)
    assert api.writes == []
    run_controller(api, "theirs")
    use(api, "others")
    await reconcile(api)
    assert allowed(api) == ["demo-controller", "others", "theirs"]
    for name in ("demo-controller", "theirs"):
        del api.objects[POD, "space", f"pod-of-{name}"]
    run_controller(api, "others")
    await reconcile(api)
    assert allowed(api) == ["others"]
    assert (SERVICE_ACCOUNT, "space", "demo-controller") not in api.objects


async def test_pods_of_other_parts_get_no_rights() -> None:
    api = MemoryApplier()
    use(api, None)
    run_controller(api, "engines", component="engine")
    await reconcile(api)
    assert allowed(api) == ["demo-controller"]
