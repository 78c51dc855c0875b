"""The chart's objects and the samples of the documentation, as a real API server judges them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from onenode.binaries import binary
from support.chart import REPOSITORY, render
from support.operator_bench import Bench

SAMPLES = sorted((REPOSITORY / "docs" / "samples").glob("*.yaml"))

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaced": {"watchNamespaces": ["default"]},
    "everything": {
        "image": {"registry": "r.example", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccount": {"annotations": {"a": "b"}},
        "podLabels": {"team": "x"},
        "podAnnotations": {"note": "text"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "cluster": {"enabled": True},
    },
}


def dry_run(bench: Bench, manifest: dict[str, Any]) -> None:
    """Has the server check an object strictly: unknown and doubled fields are errors."""
    kind = manifest["kind"]
    group = manifest["apiVersion"]
    plural = f"{kind.lower()}s"
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespaced = kind != "PersistentVolume" and not kind.startswith(("Cluster", "Custom"))
    manifest["metadata"].pop("namespace", None)
    path = f"{prefix}/namespaces/{bench.namespace}/{plural}" if namespaced else f"{prefix}/{plural}"
    address = f"{path}/{manifest['metadata']['name']}?fieldManager=test&force=true&dryRun=All&fieldValidation=Strict"
    bench.admin.request("PATCH", address, manifest, "application/apply-patch+yaml")


@pytest.mark.parametrize("name", VALUES)
def test_the_server_accepts_the_chart(bench: Bench, name: str) -> None:
    flags = ["--api-versions", "autellix.dev/v1alpha1"]
    for manifest in render(binary("helm"), VALUES[name], namespace=bench.namespace, flags=flags):
        dry_run(bench, manifest)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_server_accepts_the_samples(bench: Bench, sample: Path) -> None:
    for manifest in yaml.safe_load_all(sample.read_text()):
        dry_run(bench, manifest)
