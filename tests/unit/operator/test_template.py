"""How a user's pod template is merged into ours."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_operator.api.base import InvalidSpec
from autellix_operator.desired.template import merge_pod_template

Json = Any

BASE: Json = {
    "metadata": {"labels": {"app": "ours"}, "annotations": {"digest": "1"}},
    "spec": {
        "serviceAccountName": "ours",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
        "containers": [
            {
                "name": "engine",
                "image": "engine:1",
                "args": ["serve"],
                "env": [{"name": "AUTELLIX_ENGINE_NAME", "value": "e"}, {"name": "HOME", "value": "/scratch"}],
                "ports": [{"name": "http", "containerPort": 8000}],
                "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 3},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}


def merged(user: Json) -> Json:
    return merge_pod_template(BASE, user, container="engine", field="spec.engine.template")


def engine(**fields: Json) -> Json:
    found = merged({"spec": {"containers": [{"name": "engine", **fields}]}})["spec"]["containers"]
    assert [each["name"] for each in found] == ["engine"]
    return found[0]


def test_an_empty_template_changes_nothing() -> None:
    assert merged({}) == BASE
    assert merged({"spec": {"containers": [{"name": "engine"}]}}) == BASE


def test_maps_merge_key_by_key() -> None:
    pod = merged({"spec": {"securityContext": {"runAsUser": 1000, "fsGroup": 5}}})["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 5}


def test_scalars_and_lists_without_names_replace() -> None:
    assert engine(image="mine", command=["/venv/bin/python"])["image"] == "mine"
    assert merged({"spec": {"tolerations": [{"key": "a"}]}})["spec"]["tolerations"] == [{"key": "a"}]


def test_variables_merge_by_name_and_replace_as_a_whole() -> None:
    found = engine(env=[{"name": "HOME", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, {"name": "NEW", "value": "1"}])
    assert found["env"] == [
        {"name": "AUTELLIX_ENGINE_NAME", "value": "e"},
        {"name": "HOME", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        {"name": "NEW", "value": "1"},
    ]


def test_volumes_merge_by_name_and_never_have_two_sources() -> None:
    claim = {"name": "tmp", "persistentVolumeClaim": {"claimName": "c"}}
    pod = merged({"spec": {"volumes": [claim, {"name": "node", "emptyDir": {}}]}})["spec"]
    assert pod["volumes"] == [claim, {"name": "node", "emptyDir": {}}]


def test_mounts_merge_by_path() -> None:
    found = engine(volumeMounts=[{"name": "other", "mountPath": "/tmp"}, {"name": "node", "mountPath": "/usr"}])
    assert [(each["name"], each["mountPath"]) for each in found["volumeMounts"]] == [
        ("other", "/tmp"),
        ("node", "/usr"),
    ]


def test_ports_merge_by_number() -> None:
    found = engine(ports=[{"name": "debug", "containerPort": 9000}])
    assert [each["containerPort"] for each in found["ports"]] == [8000, 9000]


def test_a_probe_keeps_its_times_and_has_one_handler() -> None:
    assert engine(startupProbe={"failureThreshold": 9})["startupProbe"] == {
        "httpGet": {"path": "/health", "port": "http"},
        "failureThreshold": 9,
    }
    found = engine(startupProbe={"exec": {"command": ["true"]}})
    assert found["startupProbe"] == {"exec": {"command": ["true"]}, "failureThreshold": 3}


def test_containers_of_the_user_come_after_ours() -> None:
    pod = merged({"spec": {"containers": [{"name": "logs"}], "initContainers": [{"name": "fetch"}]}})["spec"]
    assert [each["name"] for each in pod["containers"]] == ["engine", "logs"]
    assert [each["name"] for each in pod["initContainers"]] == ["fetch"]


@pytest.mark.parametrize(
    ("user", "field"),
    [
        ({"status": {}}, "status"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"metadata": {"labels": {"app": "theirs"}}}, "metadata.labels[app]"),
        ({"metadata": {"annotations": {"digest": "2"}}}, "metadata.annotations[digest]"),
        ({"metadata": []}, "metadata"),
        ({"spec": "x"}, "spec"),
        ({"spec": {"containers": {}}}, "spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0]"),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "spec.containers[1]"),
        ({"spec": {"containers": [{"name": "engine", "args": []}]}}, "spec.containers[engine].args"),
        (
            {"spec": {"containers": [{"name": "engine", "env": [{"name": "AUTELLIX_ENGINE_NAME", "value": "x"}]}]}},
            "spec.containers[engine].env[AUTELLIX_ENGINE_NAME]",
        ),
        ({"spec": {"containers": [{"name": "engine", "env": {}}]}}, "spec.containers[engine].env"),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.volumes[0]"),
    ],
)
def test_what_the_system_owns_and_what_has_no_shape_is_refused_with_its_path(user: Json, field: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        merged(user)
    assert str(refusal.value).startswith(f"spec.engine.template.{field}: ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "engine", "name"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "env", "spec", "x"]), inner),
    max_leaves=12,
)
templates = st.dictionaries(
    st.sampled_from(["metadata", "spec"]),
    json_values
    | st.fixed_dictionaries(
        {},
        optional={"containers": json_values, "volumes": json_values, "labels": json_values, "tolerations": json_values},
    ),
)


@settings(deadline=None)
@given(templates)
def test_any_template_is_merged_or_refused_and_nothing_of_ours_is_changed_in_place(user: Json) -> None:
    before, given_user = copy.deepcopy(BASE), copy.deepcopy(user)
    try:
        result = merged(user)
    except InvalidSpec:
        return
    finally:
        assert before == BASE
        assert user == given_user
    assert result["metadata"]["labels"]["app"] == "ours"
    assert result["spec"]["containers"][0]["args"] == ["serve"]
    assert merge_pod_template(result, {}, container="engine", field="") == result
