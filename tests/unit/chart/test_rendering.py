"""What the chart renders for many values, against the schemas of the oldest and the newest supported Kubernetes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from support.chart import CHART, CRD, NEWEST_KUBERNETES, OLDEST_KUBERNETES, render

EVERYTHING: dict[str, Any] = {
    "image": {"registry": "r.example:5000", "digest": "sha256:" + "a" * 64, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
    "serviceAccount": {"annotations": {"role": "x"}},
    "podLabels": {"team": "a"},
    "podAnnotations": {"note": "b"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "priorityClassName": "system-cluster-critical",
    "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
    "cluster": {"enabled": True},
    "test": {"apiKeySecretRef": {"name": "key"}},
}
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "some namespaces": {"watchNamespaces": ["a", "b"]},
    "rights of somebody else": {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"}},
    "api of somebody else": {"crds": {"enabled": False}},
    "api that goes": {"crds": {"keep": False}, "log": {"format": "text", "level": "debug"}},
    "everything": EVERYTHING,
    "everything in some namespaces": EVERYTHING | {"watchNamespaces": ["a"], "fullnameOverride": "mine"},
}
API = ["--api-versions", "autellix.dev/v1alpha1"]
#: Kinds that no release of Kubernetes has a schema for.
FOREIGN = {"AutellixCluster", "CustomResourceDefinition", "PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("name", MATRIX)
def test_all_that_is_rendered_is_valid_in_the_oldest_and_the_newest_kubernetes(program: Path, name: str) -> None:
    found = render(program, MATRIX[name], flags=API)
    assert found
    for each in found:
        if each["kind"] not in FOREIGN:
            for version in (OLDEST_KUBERNETES, NEWEST_KUBERNETES):
                kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
def test_the_crd_is_a_definition_in_the_oldest_and_the_newest_kubernetes(version: str) -> None:
    # Without "strict": schemas of schemas have fields that refer to themselves, which the strict ones leave out.
    kubernetes_validate.validate(yaml.safe_load(CRD.read_text()), version, strict=False)


def test_what_is_not_of_kubernetes_is_refused_so_the_check_can_fail(program: Path) -> None:
    (deployment,) = [each for each in render(program) if each["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePulPolicy"):
        kubernetes_validate.validate(deployment, OLDEST_KUBERNETES, strict=True)


def test_the_chart_names_the_oldest_kubernetes_that_is_checked() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={OLDEST_KUBERNETES}.0-0"


def test_the_sample_cluster_is_one_that_the_api_takes(program: Path) -> None:
    (cluster,) = [
        each for each in render(program, {"cluster": {"enabled": True}}, flags=API) if each["kind"] == "AutellixCluster"
    ]
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    jsonschema.validate(cluster["spec"], version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield (*path, name), inner
        yield from leaves(inner, (*path, name))


def test_no_value_of_the_schema_may_be_of_any_type_and_no_map_is_open() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = {("global",), ("cluster", "spec")}
    for path, inner in leaves(schema):
        assert inner.keys() & {"type", "enum", "$ref", "allOf"}, path
        if inner.get("type") == "object" and path not in free and path[0] != "affinity":
            assert "additionalProperties" in inner, path
