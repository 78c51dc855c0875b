"""The reference pages say what the code does."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route

from autellix_controller import openapi, reference
from autellix_controller.errors import ErrorCode
from autellix_controller.gateway.routes import ROUTES
from support.fake_engine import fake_engine
from support.running_controller import running_controller

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", reference.pages())
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == reference.pages()[name], "run `make reference`, and look at the difference"


async def test_the_published_schema_names_every_route_and_no_other() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        found = {("POST", path) for path in ROUTES}
        for route in replica.controller.rest.router.routes:
            assert isinstance(route, Route)
            path = re.sub(r":path\}", "}", route.path)
            found |= {(method, path) for method in (route.methods or set()) - {"HEAD"}}
        status, published = await replica.json("GET", "/openapi.json")
    assert status == 200
    assert published == openapi.document()
    documented = {(method.upper(), path) for path, item in published["paths"].items() for method in item}
    assert documented == found


async def test_answers_have_the_shape_that_is_published() -> None:
    document: dict[str, Any] = openapi.document()

    def check(path: str, method: str, status: int, answer: Any) -> None:
        response = document["paths"][path][method]["responses"][str(status)]
        schema = response["content"]["application/json"]["schema"]
        jsonschema.validate(answer, {**schema, "components": document["components"]})

    async with fake_engine() as engine, running_controller(engine) as replica:
        await replica.chat("s1")
        for path, method, name in (
            ("/v1/sessions", "post", ""),
            ("/v1/sessions", "get", ""),
            ("/v1/sessions/{session}", "get", "s1"),
            ("/v1/sessions/{session}", "get", "none"),
            ("/v1/sessions/{session}", "delete", "s1"),
            ("/v1/models", "get", ""),
            ("/v1/models/{name}", "get", "tiny"),
            ("/v1/chat/completions", "post", ""),
            ("/healthz", "get", ""),
            ("/readyz", "get", ""),
        ):
            status, answer = await replica.json(method.upper(), re.sub(r"\{\w+\}", name, path))
            check(path, method, status, answer)


def test_every_error_code_is_published() -> None:
    text = str(openapi.document()["paths"]["/v1/chat/completions"])
    assert [code.code for code in ErrorCode if f"`{code.code}`" not in text] == []
