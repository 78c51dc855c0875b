"""Single reconciles on a real API server, under the rights of the chart: what they write, and what they do not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.aio import client

from autellix_operator.api.names import FIELD_MANAGER, Key
from autellix_operator.desired.objects import Images
from autellix_operator.figures.keeper import FIGURES_MANAGER, FiguresKeeper
from autellix_operator.kube.applier import POD, Conflict, NotFound
from autellix_operator.kube.client import KubernetesApplier
from autellix_operator.reconcile import Reconciler
from support.operator_bench import KINDS, MONITORING, Bench, eventually

KEY = "k" * 43
IMAGES = Images(engine="engine:1", controller="controller:1", etcd="etcd:1")


@asynccontextmanager
async def api_of(bench: Bench) -> AsyncIterator[client.ApiClient]:
    account = bench.install_rights()
    configuration = client.Configuration(host=account.url)
    configuration.ssl_ca_cert = str(account.ca_file)
    configuration.api_key["BearerToken"] = f"Bearer {account.token}"
    async with client.ApiClient(configuration) as api:
        yield api


@asynccontextmanager
async def reconciler(bench: Bench, engine_image: str = "engine:1") -> AsyncIterator[Reconciler]:
    async with api_of(bench) as api:
        applier = KubernetesApplier(api, FIELD_MANAGER, lambda status: None)
        images = Images(engine=engine_image, controller="controller:1", etcd="etcd:1")
        yield Reconciler(applier, images, lambda: datetime.now(UTC), lambda: KEY)


def resource_versions(bench: Bench) -> dict[tuple[str, str], str]:
    """Of everything in the namespace, Events too: any write by anyone shows."""
    return {
        (plural, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for plural in (*KINDS, *MONITORING, "autellixclusters", "events")
        if plural not in MONITORING or bench.serves(plural)
        for item in bench.find(plural)
        # It complains of pods without a node, again and again.
        if item.get("source", {}).get("component") != "endpoint-slice-controller"
    }


async def settle(bench: Bench, operator: Reconciler, key: Key) -> None:
    """Reconciles and plays kubelet until the cluster is ready and Kubernetes' own controllers rest."""
    for _ in range(100):
        await operator.reconcile(key)
        bench.run_pods(key.name)
        if bench.condition(key.name, "Ready")["status"] == "True":
            before = resource_versions(bench)
            await operator.reconcile(key)
            if resource_versions(bench) == before:
                return
    raise AssertionError(f"not settled: {bench.condition(key.name, 'Ready')}")


async def test_fifty_reconciles_of_a_settled_cluster_write_nothing(bench: Bench) -> None:
    spec: dict[str, Any] = {
        "engine": {
            "replicas": 2,
            "gpu": {"count": 2},
            "extraArgs": ["--enforce-eager"],
            # Values that the server stores in another form than they are given.
            "template": {
                "spec": {
                    "containers": [{"name": "engine", "resources": {"requests": {"cpu": "1000m", "memory": "0.5Gi"}}}],
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                }
            },
        },
        "controller": {"service": {"annotations": {"load": "balancer"}}},
        "processTable": {"etcd": {"managed": {"replicas": 3, "whenDeleted": "Retain"}}},
        "networkPolicy": {"mode": "Enabled", "clientsFrom": [{"cidr": "10.0.0.0/8"}]},
        "priorityClassName": "system-cluster-critical",
    }
    spec["engine"] |= {"sharedMemorySize": "1024Mi", "env": [{"name": "A", "value": "1"}]}
    bench.install_monitoring_api()
    spec["monitoring"] = {"monitors": "Enabled", "alerts": "Enabled"}
    bench.make_cluster(**spec)
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await settle(bench, operator, key)
        before = resource_versions(bench)
        assert {plural for plural, _ in before} >= {"servicemonitors", "podmonitors", "prometheusrules"}
        for _ in range(50):
            await operator.reconcile(key)
        assert resource_versions(bench) == before


async def test_even_the_second_reconcile_of_a_new_cluster_writes_nothing_but_the_revision(bench: Bench) -> None:
    bench.make_cluster()
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await operator.reconcile(key)
        ours = ("secrets", "services", "serviceaccounts", "roles", "rolebindings")

        def versions() -> dict[tuple[str, str], str]:
            return {key: value for key, value in resource_versions(bench).items() if key[0] in ours}

        eventually(lambda: len(bench.find("replicasets", "demo")) == 2, "Kubernetes has taken up the templates")
        before = versions()
        await operator.reconcile(key)
        second = versions()
        assert {name for name in before if before[name] != second[name]} == {("services", "demo-engine")}
        await operator.reconcile(key)
        assert versions() == second


async def test_a_field_that_the_spec_drops_is_removed(bench: Bench) -> None:
    bench.make_cluster(engine={"template": {"spec": {"nodeSelector": {"disk": "fast"}}}})
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await operator.reconcile(key)
        pod = bench.get("deployments", "demo-engine")["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"disk": "fast"}
        bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": None}}})
        await operator.reconcile(key)
        assert "nodeSelector" not in bench.get("deployments", "demo-engine")["spec"]["template"]["spec"]


async def test_an_upgraded_operator_rolls_what_its_default_images_changed(bench: Bench) -> None:
    bench.make_cluster()
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await settle(bench, operator, key)
    controller = bench.get("deployments", "demo-controller")["metadata"]["generation"]
    async with reconciler(bench, engine_image="engine:2") as operator:
        await operator.reconcile(key)
        assert bench.condition("demo", "EnginesReady")["reason"] == "Updating"
        await settle(bench, operator, key)
    containers = bench.get("deployments", "demo-engine")["spec"]["template"]["spec"]["containers"]
    assert [each["image"] for each in containers] == ["engine:2"]
    assert bench.get("deployments", "demo-controller")["metadata"]["generation"] == controller


async def test_status_is_written_by_the_operator_alone_and_times_move_with_the_status_only(bench: Bench) -> None:
    bench.make_cluster()
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await settle(bench, operator, key)
        before = bench.condition("demo", "Ready")
        bench.patch("autellixclusters", "demo", {"spec": {"controller": {"service": {"port": 8080}}}})
        await operator.reconcile(key)
        after = bench.condition("demo", "Ready")
        assert after["observedGeneration"] == before["observedGeneration"] + 1
        assert after["lastTransitionTime"] == before["lastTransitionTime"]
        assert len(bench.events("demo")) == len({event["metadata"]["name"] for event in bench.events("demo")}) == 2


async def test_an_apply_to_a_pod_that_is_gone_makes_none_and_is_told_apart_from_a_refusal(bench: Bench) -> None:
    """The figures' loop passes over pods that end between its look and its write."""
    async with api_of(bench) as api:
        applier = KubernetesApplier(api, FIGURES_MANAGER, lambda status: None)
        metadata = {"name": "gone", "namespace": bench.namespace, "uid": "e2f5ae9c-6f0f-4b0c-9d5a-3f4b5a1d2c3e"}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": {"a": "b"}}}
        with pytest.raises((NotFound, Conflict)):
            await applier.apply(POD, manifest)
    assert bench.gone("pods", "gone")


class Pages:
    """The pages of metrics of the pods of a cluster: there are no containers that could serve them."""

    def __init__(self, programs: dict[str, int]) -> None:
        self._programs = programs

    async def page(self, address: str, port: int, key: str = "") -> str:
        if port == 8000:
            assert key == KEY
            return "autellix_engine_worst_wait_ratio 2.5\n"
        lines = [f'autellix_controller_engine_programs{{engine="{name}"}} {n}\n' for name, n in self._programs.items()]
        return f"autellix_controller_programs {sum(self._programs.values())}\n" + "".join(lines)

    async def readiness(self, address: str, port: int) -> bytes:
        return b'{"table": {"loaded": true, "connected": true, "cause": ""}}'


async def test_a_scale_down_takes_the_engine_with_the_fewest_programs(bench: Bench) -> None:
    bench.make_cluster(engine={"replicas": 3})
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await settle(bench, operator, key)

    def engines() -> list[str]:
        pods = [pod for pod in bench.find("pods", "demo") if "engine" in pod["metadata"]["name"]]
        return sorted(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"])

    names = engines()
    async with api_of(bench) as api:
        figures = KubernetesApplier(api, FIGURES_MANAGER, lambda status: None)
        keeper = FiguresKeeper(figures, Pages(dict(zip(names, (5, 0, 7), strict=True))), lambda: datetime.now(UTC))
        applier = KubernetesApplier(api, FIELD_MANAGER, lambda status: None)
        operator = Reconciler(applier, IMAGES, lambda: datetime.now(UTC), lambda: KEY, refresh_figures=keeper.refresh)
        bench.patch("autellixclusters", "demo", {"spec": {"replicas": 2}}, "scale")
        await operator.reconcile(key)
        eventually(lambda: engines() == [names[0], names[2]], f"{names[1]} goes")
        await settle(bench, operator, key)
        live = bench.get("autellixclusters", "demo")
        assert live["status"]["programs"] == {"live": 12, "worstWaitRatioPercent": 250}
        assert live["status"]["processTable"] == {"controllers": 2, "connected": 2}
        assert live["status"]["engineStates"] == {"serving": 2, "starting": 0, "draining": 0}
        before = resource_versions(bench)
        await keeper.refresh(key)
        await operator.reconcile(key)
        assert resource_versions(bench) == before
        # Somebody else's word about the same engines counts as drift.
        bench.patch("autellixclusters", "demo", {"status": {"programs": {"live": 99}}}, "status")
        await keeper.refresh(key)
        assert bench.get("autellixclusters", "demo")["status"] == live["status"]


async def test_the_key_is_made_once_and_never_shown(bench: Bench) -> None:
    bench.make_cluster()
    key = Key(bench.namespace, "demo")
    async with reconciler(bench) as operator:
        await settle(bench, operator, key)
    for plural in (*KINDS, "autellixclusters", "events"):
        for item in bench.find(plural):
            assert KEY not in str(item), f"the key stands in {plural} {item['metadata']['name']}"
