"""Values, their schema and their page in the docs say the same."""

import json

from support import chart_reference
from support.chart import CHART

VALUES = (CHART / "values.yaml").read_text()


def test_the_page_is_made_from_the_values_as_they_are() -> None:
    assert chart_reference.PAGE.read_text() == chart_reference.current(), "run `make reference`"


def test_every_value_is_described() -> None:
    assert chart_reference.undocumented(VALUES) == []
    assert chart_reference.undocumented("# The one.\na: 1\nb: {c: 2}\n") == ["b.c"]


def test_the_schema_names_the_values_that_there_are() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    without_default = {"global", *(f"affinity.{kind}" for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"))}
    named = chart_reference.property_paths(schema) - without_default
    free = ("cluster.spec.", "monitoring.dashboard.labels.", "resources.requests.", "resources.limits.")
    there_are = {value.path for value in chart_reference.values(VALUES) if not value.path.startswith(free)}
    assert named == there_are


def test_a_comment_above_a_key_describes_it_and_one_further_up_does_not() -> None:
    text = "# Not of a.\n\n# What a is,\n# in two lines.\na: 1\ngroup:\n  # Of b.\n  b: x\n"
    found = {value.path: value.comment for value in chart_reference.values(text)}
    assert found == {"a": "What a is, in two lines.", "group": "", "group.b": "Of b."}
