"""The page ``docs/reference/autellixcluster.md``, made from the CRD and from the operator's lists of conditions.

``python -m support.crd_reference`` writes it anew; a test holds it equal.
"""

import ast
import inspect
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import yaml

from autellix_operator.api.conditions import ConditionType, Reason
from support.chart import CRD, REPOSITORY

Json = Any

PAGE = REPOSITORY / "docs" / "reference" / "autellixcluster.md"
_HEADER = """\
# AutellixCluster

Made from `crds/` and the operator's conditions by `make reference`: change those, not this page. The same text:
`kubectl explain axc.spec --recursive`.

API version `autellix.dev/v1alpha1`, kind `AutellixCluster`, short name `axc`, category `autellix`. A wrong value is
refused at admission, with the name of the field and what is allowed.
"""


def current() -> str:
    """The page as it should be."""
    schema = version()["schema"]["openAPIV3Schema"]
    lines = [_HEADER, "## Columns of `kubectl get`", "", "| column | from | shown |", "|---|---|---|"]
    for column in version()["additionalPrinterColumns"]:
        lines.append(
            f"| {column['name']} | `{column['jsonPath']}` | {'-o wide' if column.get('priority') else 'always'} |"
        )
    lines += ["", "## Name", "", *(f"- {rule['message']}" for rule in schema["x-kubernetes-validations"])]
    for part in ("spec", "status"):
        lines += ["", f"## {part}", "", "| field | type | default | meaning |", "|---|---|---|---|"]
        lines += [_row(path, node, required) for path, node, required in fields(schema["properties"][part], part)]
        lines += _rules(schema["properties"][part], part)
    for title, members in (("Conditions", ConditionType), ("Reasons", Reason)):
        lines += ["", f"## {title}", "", "| value | meaning |", "|---|---|"]
        lines += [f"| `{value}` | {text} |" for value, text in meanings(members).items()]
    return "\n".join(lines) + "\n"


def version() -> Json:
    """The one version of the API, as the CRD has it."""
    return yaml.safe_load(CRD.read_text())["spec"]["versions"][0]


def fields(node: Json, path: str, required: bool = False) -> Iterator[tuple[str, Json, bool]]:
    """Every field below ``path``: its path, its schema, whether it must be given."""
    for name, child in node.get("properties", {}).items():
        inner = f"{path}.{name}"
        yield inner, child, name in node.get("required", ())
        yield from fields(child, inner)
        if "items" in child:
            yield from fields(child["items"], f"{inner}[]")


def meanings(members: type[StrEnum]) -> dict[str, str]:
    """The values of an enumeration, each with the text that follows it in the source."""
    body = ast.parse(inspect.getsource(members)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.Assign):
            assert isinstance(following, ast.Expr), f"{ast.unparse(statement)} is not described"
            found[ast.literal_eval(statement.value)] = " ".join(ast.literal_eval(following.value).split())
    return found


def _row(path: str, node: Json, required: bool) -> str:
    default = "required" if required else _default(node)
    return f"| `{path.partition('.')[2]}` | {_type(node)} | {default} | {_cell(node.get('description', ''))} |"


def _default(node: Json) -> str:
    return f"`{json.dumps(node['default'])}`" if node.get("default") not in (None, {}) else ""


def _type(node: Json) -> str:
    kind = str(node["type"])
    if "enum" in node:
        return ", ".join(f"`{each}`" for each in node["enum"])
    if kind == "array":
        return f"list of {_type(node['items'])}, at most {node['maxItems']}"
    if kind == "object" and "additionalProperties" in node:
        return "map of strings"
    if "minimum" in node and "maximum" in node:
        return f"{kind}, {node['minimum']} to {node['maximum']}"
    return kind


def _rules(node: Json, path: str) -> list[str]:
    places = [(path, node), *((name, each) for name, each, _ in fields(node, path))]
    places += [(f"{name}[]", each["items"]) for name, each in places if "items" in each]
    rules = [
        f"- `{name}`: {_cell(rule['message'])}"
        for name, each in places
        for rule in each.get("x-kubernetes-validations", ())
    ]
    return ["", "Rules across fields:", "", *rules] if rules else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(current())
