"""The life of a release with the real helm on a real API server, which takes all that the chart renders."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from onenode.binaries import binary
from support.apiserver import ApiError, Client, api_server
from support.chart import CHART, earlier_chart
from support.chart import CRD as SOURCE
from support.operator_bench import cluster, eventually

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/autellixclusters.autellix.dev"
CLUSTERS = "/apis/autellix.dev/v1alpha1/namespaces/default/autellixclusters"

#: An API server behaves like its three predecessors on demand. The oldest supported Kubernetes is one older.
OLDEST_EMULATED = "1.32"


@pytest.fixture(scope="module")
def admin() -> Iterator[Client]:
    """A server of its own: releases own the API itself. It behaves like the oldest Kubernetes that it can."""
    with api_server(binary("kube"), emulated=OLDEST_EMULATED) as client:
        version = client.request("GET", "/version")
        assert f"{version['emulationMajor']}.{version['emulationMinor']}" == OLDEST_EMULATED
        yield client


@pytest.fixture(autouse=True)
def nothing_left(admin: Client) -> Iterator[None]:
    """Each test begins without the AutellixCluster API and without releases."""
    yield
    if exists(admin, CRD):
        admin.request("DELETE", CRD)
        eventually(lambda: not exists(admin, CRD), "the API is gone")


@pytest.fixture
def kubeconfig(admin: Client, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(admin.kubeconfig()))
    return path


def helm(kubeconfig: Path, *arguments: str) -> str:
    folders = {
        name: str(kubeconfig.parent / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    }
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [binary("helm"), *arguments],
        env=environment | folders | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def exists(admin: Client, path: str) -> bool:
    try:
        admin.request("GET", path)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def test_install_upgrade_uninstall_and_what_stays(admin: Client, kubeconfig: Path) -> None:
    notes = helm(kubeconfig, "install", "rel", str(CHART), "--set", "crds.keep=false")
    for words in ("deployment/rel-autellix-operator", "kubectl get axc", "kubectl explain axc.spec"):
        assert words in notes
    eventually(lambda: exists(admin, CLUSTERS), "the API is served")
    admin.request("POST", CLUSTERS, cluster("mine"))

    notes = helm(kubeconfig, "upgrade", "rel", str(CHART), "--set", "watchNamespaces={default},cluster.enabled=true")
    assert "in: default" in notes
    assert "kubectl delete crd" in notes
    assert exists(admin, f"{CLUSTERS}/mine")
    assert exists(admin, f"{CLUSTERS}/sample")
    role = "autellix:default:rel-autellix-operator"
    assert exists(admin, f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/{role}")
    assert not exists(admin, f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")

    helm(kubeconfig, "rollback", "rel", "1")
    assert exists(admin, f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")
    assert exists(admin, f"{CLUSTERS}/mine")
    helm(kubeconfig, "upgrade", "rel", str(CHART), "--reset-values")
    helm(kubeconfig, "uninstall", "rel", "--wait")
    assert exists(admin, f"{CLUSTERS}/mine"), "the API is kept, and clusters with it"
    assert not exists(admin, "/apis/apps/v1/namespaces/default/deployments/rel-autellix-operator")
    assert not exists(admin, f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")

    helm(kubeconfig, "install", "rel", str(CHART), "--take-ownership", "--set", "crds.keep=false")
    helm(kubeconfig, "uninstall", "rel", "--wait")
    eventually(lambda: not exists(admin, CRD), "the API is gone, and clusters with it")


def test_a_release_of_an_earlier_chart_is_upgraded_and_rolled_back_and_keeps_its_clusters(
    admin: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    helm(kubeconfig, "install", "rel", str(earlier_chart(tmp_path)))
    eventually(lambda: exists(admin, CLUSTERS), "the API is served")
    admin.request("POST", CLUSTERS, cluster("mine"))
    before = admin.request("GET", f"{CLUSTERS}/mine")["metadata"]["uid"]

    helm(kubeconfig, "upgrade", "rel", str(CHART))
    assert admin.request("GET", f"{CLUSTERS}/mine")["metadata"]["uid"] == before
    source = yaml.safe_load(SOURCE.read_text())
    assert admin.request("GET", CRD)["spec"]["versions"][0]["schema"] == source["spec"]["versions"][0]["schema"]
    helm(kubeconfig, "rollback", "rel", "1")
    assert admin.request("GET", f"{CLUSTERS}/mine")["metadata"]["uid"] == before
    helm(kubeconfig, "uninstall", "rel")
    assert exists(admin, f"{CLUSTERS}/mine")


def test_releases_stand_side_by_side_under_long_names(admin: Client, kubeconfig: Path) -> None:
    long = "a" * 53
    apart = {"one": "watchNamespaces={one}", "two": "watchNamespaces={two},crds.enabled=false"}
    for namespace, values in apart.items():
        helm(kubeconfig, "install", long, str(CHART), "--namespace", namespace, "--create-namespace", "--set", values)
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles"
    for namespace in apart:
        (role,) = admin.request("GET", roles.format(namespace))["items"]
        assert role["metadata"]["labels"]["app.kubernetes.io/instance"] == long

    helm(kubeconfig, "uninstall", long, "--namespace", "two")
    assert admin.request("GET", roles.format("two"))["items"] == []
    assert admin.request("GET", "/apis/apps/v1/namespaces/two/deployments")["items"] == []
    assert len(admin.request("GET", roles.format("one"))["items"]) == 1
    assert exists(admin, CRD), "the API belongs to the other release"
    helm(kubeconfig, "uninstall", long, "--namespace", "one")


def test_a_second_release_that_would_take_the_api_from_the_first_is_refused(admin: Client, kubeconfig: Path) -> None:
    helm(kubeconfig, "install", "first", str(CHART))
    with pytest.raises(AssertionError, match=r"autellixclusters\.autellix\.dev.*first"):
        helm(kubeconfig, "install", "second", str(CHART), "--namespace", "other", "--create-namespace")
    helm(kubeconfig, "uninstall", "first")


def test_dashboard_and_test_are_part_of_a_release_and_go_with_it(admin: Client, kubeconfig: Path) -> None:
    values = "monitoring.dashboard.enabled=true,test.endpoint=http://a.b.svc/v1,test.longCalls=3"
    helm(kubeconfig, "install", "rel", str(CHART), "--set", values)
    maps = "/api/v1/namespaces/default/configmaps/rel-autellix-operator-dashboard"
    assert '"title": "Autellix"' in admin.request("GET", maps)["data"]["autellix.json"]
    hooks = helm(kubeconfig, "get", "hooks", "rel")
    assert "--long-calls=3" in hooks
    (pod,) = [hook for hook in yaml.safe_load_all(hooks) if hook]
    admin.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    helm(kubeconfig, "uninstall", "rel")
    assert not exists(admin, maps)
