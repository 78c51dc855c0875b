"""The page ``docs/reference/chart-values.md``, made from the comments of the chart's values and from their schema.

``python -m support.chart_reference`` writes it anew; a test holds it equal.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from support.chart import CHART, REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "chart-values.md"
_HEADER = """\
# Values of the chart

Made from `charts/autellix/values.yaml` and its schema by `make reference`: change those, not this page.
A value that is not listed, or of another type, is refused by helm with its name.

| value | type | default | meaning |
|---|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value, or a group of them."""

    path: str
    default: Any
    comment: str
    """Empty: its group's comment says it all."""
    leaf: bool


def values(text: str) -> Iterator[Value]:
    """Every value of a values file, groups before their members."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _members(root, "", yaml.safe_load(text), text.splitlines())


def undocumented(text: str) -> list[str]:
    """Values for which neither a comment of their own nor one of a group says what they are."""
    found = list(values(text))
    commented = {value.path for value in found if value.comment}
    return [value.path for value in found if value.leaf and not commented & set(_with_groups(value.path))]


def page(values_text: str, schema: Mapping[str, Any]) -> str:
    """The page."""
    found = list(values(values_text))
    commented = [value for value in found if value.comment]
    rows = []
    for value in commented:
        split = any(other is not value and other.path.startswith(f"{value.path}.") for other in commented)
        default = "" if split else f"`{json.dumps(value.default)}`"
        kind = "" if split else _kind(_resolved(schema, value.path))
        rows.append(f"| `{value.path}` | {kind} | {default} | {value.comment} |")
    return _HEADER + "\n".join(rows) + "\n"


def property_paths(schema: Mapping[str, Any]) -> set[str]:
    """Every value that a schema names."""
    return set(_properties(schema, schema, ""))


def _members(node: yaml.MappingNode, group: str, defaults: Any, lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{group}{key.value}"
        inner = isinstance(value, yaml.MappingNode) and bool(value.value)
        default = defaults[key.value]
        yield Value(path=path, default=default, comment=_comment(lines, key.start_mark), leaf=not inner)
        if inner:
            yield from _members(value, f"{path}.", default, lines)


def _comment(lines: list[str], mark: yaml.Mark) -> str:
    """The comment right above a key, at the key's indentation."""
    sign = " " * mark.column + "# "
    first = mark.line
    while first and lines[first - 1].startswith(sign):
        first -= 1
    return " ".join(line.removeprefix(sign) for line in lines[first : mark.line])


def _with_groups(path: str) -> Iterator[str]:
    parts = path.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _dereferenced(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    if "allOf" in node:
        return _dereferenced(schema, node["allOf"][0])
    reference = node.get("$ref", "").rpartition("/")[2]
    return schema["definitions"][reference] if reference else node


def _resolved(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    node = schema
    for part in path.split("."):
        node = _dereferenced(schema, node["properties"][part])
    return node


def _properties(schema: Mapping[str, Any], node: Mapping[str, Any], group: str) -> Iterator[str]:
    for name, inner in node.get("properties", {}).items():
        yield f"{group}{name}"
        yield from _properties(schema, _dereferenced(schema, inner), f"{group}{name}.")


def _kind(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(f"`{choice}`" for choice in node["enum"])
    if node["type"] == "integer":
        return f"integer, {node['minimum']} to {node['maximum']}"
    return {"boolean": "`true` or `false`", "object": "map", "array": "list", "string": "text"}[node["type"]]


def main() -> None:
    """Writes the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(current())


def current() -> str:
    """The page as the chart is now."""
    return page((CHART / "values.yaml").read_text(), json.loads((CHART / "values.schema.json").read_text()))


if __name__ == "__main__":
    main()
