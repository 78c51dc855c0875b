"""The chart as helm renders it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from autellix_controller.__main__ import KEY_VARIABLE, command_line
from autellix_operator.settings import Settings, load, variable
from support.chart import CHART, HelmError, helm, render

Json = Any


def one(found: list[Json], kind: str) -> Json:
    (only,) = [each for each in found if each["kind"] == kind]
    return only


def test_lint_is_clean(program: Path) -> None:
    assert "0 chart(s) failed" in helm(program, "lint", "--strict", str(CHART))


def test_one_operator_runs_at_a_time_in_a_restricted_pod(program: Path) -> None:
    deployment = one(render(program), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_operator_accepts_the_settings_of_the_chart(program: Path) -> None:
    values = {
        "watchNamespaces": ["a", "b"],
        "workers": 2,
        "resyncSeconds": 60,
        "figuresSeconds": 5,
        "log": {"format": "text"},
    }
    (container,) = one(render(program, values), "Deployment")["spec"]["template"]["spec"]["containers"]
    settings = load({}, {each["name"]: each["value"] for each in container["env"]})
    assert settings.watch_namespaces == ("a", "b")
    assert (settings.workers, settings.resync_seconds, settings.log_format) == (2, 60, "text")
    assert settings.figures_seconds == 5
    assert settings.etcd_image == "registry.k8s.io/etcd:3.6.5-0"
    assert settings.engine_image == "autellix/engine:0.1.0"
    assert {each["name"] for each in container["env"]} == {variable(name) for name in Settings.model_fields}


def test_ports_and_probes_are_those_of_the_operator(program: Path) -> None:
    (container,) = one(render(program), "Deployment")["spec"]["template"]["spec"]["containers"]
    (listen,) = [each["value"] for each in container["env"] if each["name"].endswith("HTTP_LISTEN")]
    assert [port["containerPort"] for port in container["ports"]] == [int(listen.rpartition(":")[2])]


def test_rights_are_in_the_whole_of_kubernetes_or_in_the_namespaces_only(program: Path) -> None:
    everywhere = render(program)
    assert {each["kind"] for each in everywhere} >= {"ClusterRole", "ClusterRoleBinding"}
    some = render(program, {"watchNamespaces": ["a", "b"]})
    assert not [each for each in some if each["kind"].startswith("Cluster")]
    roles = [each for each in some if each["kind"] == "Role"]
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    assert all(role["rules"] == one(everywhere, "ClusterRole")["rules"] for role in roles)
    assert not [each for each in render(program, {"rbac": {"create": False}}) if "Role" in each["kind"]]


def test_no_right_is_a_wildcard(program: Path) -> None:
    for rule in one(render(program), "ClusterRole")["rules"]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_the_crd_is_the_source_with_the_keep_policy_if_wanted(program: Path) -> None:
    source = yaml.safe_load((CHART / "files" / "autellix.dev_autellixclusters.yaml").read_text())
    kept = one(render(program), "CustomResourceDefinition")
    assert kept["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert kept == source
    assert one(render(program, {"crds": {"keep": False}}), "CustomResourceDefinition") == source
    left_out = render(program, {"crds": {"enabled": False}})
    assert not [each for each in left_out if each["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "autellix/operator:0.1.0"),
        ({"registry": "r.example:5000", "tag": "v2"}, "r.example:5000/autellix/operator:v2"),
        ({"repository": "op", "tag": "x", "digest": "sha256:" + "a" * 64}, "op@sha256:" + "a" * 64),
    ],
)
def test_images(program: Path, image: Json, reference: str) -> None:
    (container,) = one(render(program, {"image": image}), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == reference


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"replicas": 2}, "replicas"),
        ({"image": {"digest": "latest"}}, "image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image/pullPolicy"),
        ({"watchNamespaces": "a"}, "watchNamespaces"),
        ({"watchNamespaces": ["A"]}, "watchNamespaces/0"),
        ({"workers": "4"}, "workers"),
        ({"log": {"level": "loud"}}, "log/level"),
        ({"crds": {"install": True}}, "install"),
        ({"fullnameOverride": "Upper"}, "fullnameOverride"),
        ({"cluster": {"name": "a" * 41}}, "cluster/name"),
        ({"resources": {"limit": {}}}, "resources"),
        ({"resources": {"limits": {"memory": "much"}}}, "resources/limits/memory"),
        ({"tolerations": [{"effects": "NoSchedule"}]}, "tolerations/0"),
        ({"affinity": {"pods": {}}}, "affinity"),
        ({"monitoring": {"podMonitor": {"intervalSeconds": "30s"}}}, "monitoring/podMonitor/intervalSeconds"),
        ({"test": {"endpoint": "agents.demo.svc"}}, "test/endpoint"),
        ({"test": {"longCalls": 0}}, "test/longCalls"),
        ({"podLabels": {"app.kubernetes.io/instance": "mine"}}, "app.kubernetes.io/instance"),
    ],
)
def test_unknown_and_mistyped_values_are_refused_with_their_name(program: Path, values: Json, field: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render(program, values)
    assert field in str(refusal.value)


def test_long_names_fit_and_two_releases_do_not_meet(program: Path) -> None:
    long = "a" * 53
    for each in render(program, release=long):
        assert len(each["metadata"]["name"]) <= 63 or each["kind"].startswith("Cluster") or "Custom" in each["kind"]
    no_crd = {"crds": {"enabled": False}}
    one_namespace, other = (
        {(each["kind"], each["metadata"]["name"]) for each in render(program, no_crd, namespace=name)}
        for name in ("one", "two")
    )
    shared = {kind for kind, _ in one_namespace & other}
    assert not {kind for kind in shared if kind.startswith("Cluster")}


def test_everything_is_labelled_and_the_selector_does_not_hold_the_version(program: Path) -> None:
    for each in render(program, {"crds": {"enabled": False}}):
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "test"
    selector = one(render(program), "Deployment")["spec"]["selector"]["matchLabels"]
    assert selector == {"app.kubernetes.io/name": "autellix-operator", "app.kubernetes.io/instance": "test"}


def test_a_service_account_of_ones_own_needs_its_name(program: Path) -> None:
    with pytest.raises(HelmError, match=r"serviceAccount\.name"):
        render(program, {"serviceAccount": {"create": False}})
    found = render(program, {"serviceAccount": {"create": False, "name": "mine"}})
    assert one(found, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert one(found, "ClusterRoleBinding")["subjects"][0]["name"] == "mine"


def test_the_sample_cluster_waits_for_its_api(program: Path) -> None:
    values = {"cluster": {"enabled": True, "name": "mine", "spec": {"engine": {"replicas": 2}}}}
    with pytest.raises(HelmError, match=r"cluster\.enabled"):
        render(program, values)
    found = one(render(program, values, flags=["--api-versions", "autellix.dev/v1alpha1"]), "AutellixCluster")
    assert found["metadata"]["name"] == "mine"
    assert found["spec"]["engine"] == {"replicas": 2}


@pytest.mark.parametrize(("watched", "namespace"), [([], "default"), (["a", "b"], "a"), (["a", "default"], "default")])
def test_the_sample_cluster_is_where_the_operator_serves_it(program: Path, watched: list[str], namespace: str) -> None:
    values = {"watchNamespaces": watched, "cluster": {"enabled": True}}
    found = one(render(program, values, flags=["--api-versions", "autellix.dev/v1alpha1"]), "AutellixCluster")
    assert found["metadata"]["namespace"] == namespace


@pytest.mark.parametrize(
    ("values", "endpoint"),
    [
        ({"test": {"endpoint": "https://llm.example/v1"}}, "https://llm.example/v1"),
        ({"cluster": {"enabled": True}}, "http://sample.default.svc:80/v1"),
        (
            {
                "watchNamespaces": ["a"],
                "cluster": {"enabled": True, "name": "c", "spec": {"controller": {"service": {"port": 8000}}}},
            },
            "http://c.a.svc:8000/v1",
        ),
    ],
)
def test_the_test_asks_the_cluster_that_is_named_or_the_one_of_the_release(
    program: Path, values: Json, endpoint: str
) -> None:
    pod = one(render(program, values, flags=["--api-versions", "autellix.dev/v1alpha1"]), "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert container["args"][-1] == endpoint
    assert container["image"] == "autellix/controller:0.1.0"


def test_the_test_takes_its_key_from_a_secret_and_its_arguments_are_those_of_the_command(program: Path) -> None:
    values = {"test": {"endpoint": "http://a.b.svc/v1", "longCalls": 1000000 // 100, "apiKeySecretRef": {"name": "k"}}}
    (container,) = one(render(program, values), "Pod")["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "k", "key": "key"}
    assert variable["name"] == KEY_VARIABLE
    arguments = command_line().parse_args(container["args"])
    assert (arguments.command, arguments.long_calls, arguments.endpoint) == ("prove", 10000, "http://a.b.svc/v1")


def test_without_a_cluster_there_is_nothing_to_test(program: Path) -> None:
    assert "Pod" not in {each["kind"] for each in render(program)}


def test_every_value_is_used_by_a_template() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for name in values:
        assert re.search(rf"\.Values\.{name}\b", templates), f"{name} is a value that nothing uses"
