"""CRD, models, samples and the reference page say the same."""

import re
from typing import Any

import jsonschema
import pytest
import yaml

from autellix_operator.api.conditions import ConditionType, Reason
from autellix_operator.api.spec import parse_spec
from support import crd_reference
from support.chart import REPOSITORY

Json = Any

SAMPLES = sorted((REPOSITORY / "docs" / "samples").glob("*.yaml"))


def sample_clusters() -> list[Json]:
    documents = [each for path in SAMPLES for each in yaml.safe_load_all(path.read_text())]
    return [each for each in documents if each["kind"] == "AutellixCluster"]


def strict(node: Json) -> Json:
    """The schema with unknown fields refused, as `kubectl --validate=strict` does."""
    if not isinstance(node, dict):
        return node
    result = {name: strict(each) for name, each in node.items() if not name.startswith("x-")}
    if "properties" in node:
        result["properties"] = {name: strict(each) for name, each in node["properties"].items()}
        if not node.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    return result


def test_the_page_is_what_the_crd_says() -> None:
    assert crd_reference.PAGE.read_text() == crd_reference.current(), "run `make reference`"


def test_every_field_condition_and_reason_is_on_the_page() -> None:
    page = crd_reference.current()
    for path, _, _ in crd_reference.fields(crd_reference.version()["schema"]["openAPIV3Schema"], ""):
        if not re.match(r"\.(apiVersion|kind|metadata|spec|status)$", path):
            assert f"| `{path.removeprefix('.spec.').removeprefix('.status.')}` |" in page, path
    for each in (*ConditionType, *Reason):
        assert f"| `{each}` |" in page


@pytest.mark.parametrize("resource", sample_clusters(), ids=lambda each: each["metadata"]["name"])
def test_samples_are_taken_by_schema_and_models(resource: Json) -> None:
    schema = strict(crd_reference.version()["schema"]["openAPIV3Schema"]["properties"]["spec"])
    jsonschema.validate(resource["spec"], schema)
    parse_spec(resource)


def test_the_columns_are_those_that_people_look_for() -> None:
    columns = crd_reference.version()["additionalPrinterColumns"]
    always = [each["name"] for each in columns if not each.get("priority")]
    assert always == ["Ready", "Reason", "Policy", "Engines", "Programs", "Age"]
