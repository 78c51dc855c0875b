"""The CRD and the operator's models say the same, and the CRD follows the conventions of the Kubernetes API."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from autellix_engine.launcher.arguments import REFUSED
from autellix_operator.api.arguments import RESERVED_ARGUMENTS, RESERVED_FAMILIES, reserved_argument
from autellix_operator.api.conditions import ConditionType
from autellix_operator.api.spec import GROUP, KIND, PLURAL, VERSION, Spec
from support.chart import CHART, CRD

Json = Any


def version() -> Json:
    return yaml.safe_load(CRD.read_text())["spec"]["versions"][0]


def schema(part: str) -> Json:
    return version()["schema"]["openAPIV3Schema"]["properties"][part]


def walk(node: Json, path: str) -> Iterator[tuple[str, Json]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from walk(node["additionalProperties"], f"{path}{{}}")


PLACES = dict(walk(schema("spec"), "spec")) | dict(walk(schema("status"), "status"))


def models() -> Json:
    """The models' schema in the form of the CRD: references inlined, null unions dropped."""
    whole = Spec.model_json_schema()

    def simplified(node: Json) -> Json:
        if "$ref" in node:
            return simplified(
                whole["$defs"][node["$ref"].rpartition("/")[2]] | {k: v for k, v in node.items() if k != "$ref"}
            )
        if "anyOf" in node:
            (only,) = [each for each in node["anyOf"] if each.get("type") != "null"]
            return simplified(only | {k: v for k, v in node.items() if k not in ("anyOf", "default")})
        if "const" in node:
            node = node | {"enum": [node["const"]]}
        result = {k: v for k, v in node.items() if k not in ("title", "description", "$defs", "const")}
        if "properties" in result:
            result["properties"] = {k: simplified(v) for k, v in result["properties"].items()}
        if "items" in result:
            result["items"] = simplified(result["items"])
        if isinstance(result.get("additionalProperties"), dict):
            result["additionalProperties"] = simplified(result["additionalProperties"])
        return result

    return simplified(whole)


MODELS = dict(walk(models(), "spec"))


def test_names_are_those_of_the_operator() -> None:
    crd = yaml.safe_load(CRD.read_text())
    assert crd["spec"]["group"] == GROUP
    assert crd["spec"]["names"]["kind"] == KIND
    assert crd["spec"]["names"]["plural"] == PLURAL
    assert version()["name"] == VERSION


def test_fields_are_the_same_on_both_sides() -> None:
    free = {path for path in PLACES if path.endswith(".template")}
    assert {path for path in PLACES if path.startswith("spec")} == set(MODELS)
    assert all(PLACES[path]["x-kubernetes-preserve-unknown-fields"] for path in free)


@pytest.mark.parametrize("path", [path for path in PLACES if path.startswith("spec")])
def test_types_bounds_and_enumerations_are_the_same_on_both_sides(path: str) -> None:
    ours, theirs = PLACES[path], MODELS[path]
    for word in ("type", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "enum"):
        assert ours.get(word) == theirs.get(word), word
    assert ours.get("maxProperties") == theirs.get("maxProperties")
    assert sorted(ours.get("required", [])) == sorted(theirs.get("required", []))


def test_defaults_are_the_same_on_both_sides() -> None:
    scalar = {
        path: node["default"]
        for path, node in PLACES.items()
        if "default" in node and not isinstance(node["default"], dict)
    }
    theirs = {path: node.get("default") for path, node in MODELS.items() if path in scalar}
    assert scalar == theirs
    derived = {path for path, node in MODELS.items() if node.get("default") not in (None, [], {})} - set(scalar)
    assert {path for path in derived if not isinstance(MODELS[path]["default"], dict)} == set()


@pytest.mark.parametrize("path", PLACES)
def test_every_field_is_described_and_bounded(path: str) -> None:
    node = PLACES[path]
    if not path.endswith(("]", "}")):
        assert node["description"].endswith("."), "a description is a sentence"
    assert "x-kubernetes-preserve-unknown-fields" not in node or path.endswith(".template")
    if node["type"] == "integer":
        assert node["format"] in ("int32", "int64")
    assert node["type"] != "number"
    if path.startswith("spec"):
        if node["type"] == "string":
            assert "enum" in node or "maxLength" in node
        if node["type"] == "integer":
            assert "enum" in node or ("minimum" in node and "maximum" in node)
        if node["type"] == "array":
            assert "maxItems" in node


@pytest.mark.parametrize("path", [path for path, node in PLACES.items() if node.get("default") not in (None, {})])
def test_a_default_is_told_and_never_on_a_required_field(path: str) -> None:
    parent, _, name = path.rpartition(".")
    assert name not in PLACES[parent].get("required", [])
    description, default = PLACES[path]["description"], PLACES[path]["default"]
    if isinstance(default, list):
        assert all(str(item) in description for item in default)
    elif not isinstance(default, dict):
        assert re.search(rf'Defaults to "?{re.escape(str(default))}\b', description), description


def test_units_are_in_the_names_of_times() -> None:
    for path in (path for path in PLACES if path.startswith("spec")):
        name = path.rpartition(".")[2]
        if re.search(r"timeout|idle|drain|quanta|bounds|floor", name, re.IGNORECASE):
            assert re.search(r"(Seconds|Milliseconds)(\[\])?$", name), name


def test_the_reserved_arguments_are_those_of_the_operator() -> None:
    (rule,) = PLACES["spec.engine.extraArgs[]"]["x-kubernetes-validations"]
    names, families = (re.findall(r"'(-[-a-z]+)'", part) for part in re.findall(r"\[('.*?)\]", rule["rule"]))
    assert tuple(names) == RESERVED_ARGUMENTS
    assert tuple(families) == RESERVED_FAMILIES
    assert rule["message"].endswith(
        ": " + ", ".join([*RESERVED_ARGUMENTS, *(f"{each}*" for each in RESERVED_FAMILIES)])
    )


@pytest.mark.parametrize("argument", REFUSED)
def test_what_the_engine_refuses_is_refused_at_admission(argument: str) -> None:
    assert reserved_argument(argument.replace("*", "x"))


def test_every_condition_type_is_described() -> None:
    description = PLACES["status.conditions[].type"]["description"]
    for each in ConditionType:
        assert each in description


def test_the_chart_carries_the_same_bytes() -> None:
    assert (CHART / "files" / CRD.name).read_bytes() == CRD.read_bytes()
