"""The life of a release with the real helm on a real API server."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from onenode.binaries import binary
from support.apiserver import ApiError, Client, api_server
from support.chart import CHART
from support.operator_bench import cluster, eventually

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/autellixclusters.autellix.dev"
CLUSTERS = "/apis/autellix.dev/v1alpha1/namespaces/default/autellixclusters"


@pytest.fixture(scope="module")
def admin() -> Iterator[Client]:
    """A server of its own: releases own the API itself."""
    with api_server(binary("kube")) as client:
        yield client


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
