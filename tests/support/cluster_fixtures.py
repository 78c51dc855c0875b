"""Fixtures around a real API server, for the `conftest.py` of the folders of tests that need one."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from onenode.binaries import binary
from support.apiserver import Client, api_server
from support.chart import CRD
from support.operator_bench import Bench, eventually

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def admin() -> Iterator[Client]:
    """An API server with the AutellixCluster API, one for the session."""
    with api_server(binary("kube")) as client:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        client.request("POST", crds, yaml.safe_load(CRD.read_text()))
        clusters = "/apis/autellix.dev/v1alpha1/autellixclusters"
        eventually(lambda: "items" in client.request("GET", clusters), "the AutellixCluster API is served")
        yield client


def new_bench(admin: Client, folder: Path) -> Bench:
    """A namespace of its own."""
    name = f"test-{next(_numbers)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    admin.request("POST", "/api/v1/namespaces", namespace)
    bench = Bench(admin, name, folder)
    # Pods are refused until their namespace's default service account is there.
    eventually(lambda: bench.get("serviceaccounts", "default"), "the namespace is set up")
    return bench


@pytest.fixture
def bench(admin: Client, tmp_path: Path) -> Bench:
    """A namespace of its own for each test."""
    return new_bench(admin, tmp_path)
