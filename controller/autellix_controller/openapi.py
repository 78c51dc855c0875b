"""The published schema of the HTTP API (OpenAPI 3.1), built from the same tables that serve it.

``docs/reference/openapi.json`` is a copy that is kept in the repository, so that every change of the API shows in a
diff; a test holds the two together, and another one holds the schema and the routes together.
"""

from collections.abc import Iterable
from typing import Any, Final

from autellix_controller.errors import ErrorCode
from autellix_controller.gateway.routes import ROUTES, Route
from autellix_controller.sessions.identity import MAX_NAME_LENGTH
from autellix_wire import headers as names

Schema = dict[str, Any]

_NAME: Final[Schema] = {"type": "string", "pattern": f"^[!-~]{{1,{MAX_NAME_LENGTH}}}$"}
_NUMBER: Final[Schema] = {"type": "number"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_STRING: Final[Schema] = {"type": "string"}
_STRING_OR_NULL: Final[Schema] = {"type": ["string", "null"]}

#: What a call to an engine may end with, and what every request with a key may.
_CALL_ERRORS: Final = tuple(ErrorCode)
_REST_ERRORS: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_API_KEY, ErrorCode.INTERNAL)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, required: Iterable[str] | None = None, *, closed: bool = False) -> Schema:
    """An object; all its properties are required unless ``required`` says which."""
    schema: Schema = {"type": "object", "properties": properties}
    if listed := list(properties if required is None else required):
        schema["required"] = listed
    if closed:
        schema["additionalProperties"] = False
    return schema


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _errors(codes: Iterable[ErrorCode]) -> Schema:
    """One response for each status, naming its codes."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(code.status, []).append(code.code)
    return {
        str(status): {"description": " or ".join(f"`{code}`" for code in found), "content": _json(_ref("Error"))}
        for status, found in sorted(by_status.items())
    }


def _operation(
    summary: str,
    ok: Schema,
    errors: Iterable[ErrorCode] = _REST_ERRORS,
    *,
    parameters: Iterable[Schema] = (),
    body: Schema | None = None,
    needs_key: bool = True,
) -> Schema:
    operation: Schema = {"summary": summary, "responses": {"200": ok, **_errors(errors)}}
    if found := list(parameters):
        operation["parameters"] = found
    if body is not None:
        operation["requestBody"] = body
    if not needs_key:
        operation["security"] = []
    return operation


def _header(name: str, description: str, schema: Schema = _NAME) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _path(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _receipts(route: Route) -> Schema:
    found = {
        names.REQUEST_ID: "Of this call, in logs and on the engine too.",
        names.PROGRAM: "Id of the program in the process table.",
        names.ENGINE: "The engine that served the call.",
        names.ROUTE: "Why that engine: short, new, pinned, spilled, only, or least_used, round_robin, prefix.",
    }
    if route.generates:
        found |= {
            names.SERVICE: "Service that the program had had, milliseconds.",
            names.LEVEL: "Level of the engine's queue that this means, 0 the best.",
            names.ACCOUNTING: "records or estimated.",
        }
    return {name: {"description": text, "schema": _STRING} for name, text in found.items()}


def _call(route: Route) -> Schema:
    """A path that is passed on: any field, any answer of the engine."""
    fields = {"model": _STRING if route.needs_model else _STRING_OR_NULL}
    ok: Schema = {
        "description": "The engine's answer, unchanged.",
        "headers": _receipts(route),
        "content": _json({"type": "object"}),
    }
    if route.generates:
        fields["stream"] = {"type": ["boolean", "null"]}
        ok["content"]["text/event-stream"] = {}
    operation = _operation(
        f"{route.summary}: passed to an engine, unknown fields and headers too",
        ok,
        _CALL_ERRORS,
        parameters=[
            _header("X-Autellix-Session", "Names the program of the call; opened if it is new."),
            _header("X-Autellix-Thread", "Names the thread of a parallel program."),
        ],
        body={"required": True, "content": _json(_object(fields, ["model"] if route.needs_model else []))},
    )
    operation["responses"]["4XX"] = {
        "description": "The engine refused the call; its message, in the same shape.",
        "content": _json(_ref("Error")),
    }
    return {"post": operation}


def _sessions() -> Schema:
    one = [_path("session", "The session's id.", _NAME)]
    session: Schema = {"description": "The session.", "content": _json(_ref("Session"))}
    not_found = (*_REST_ERRORS, ErrorCode.SESSION_NOT_FOUND)
    return {
        "/v1/sessions": {
            "post": _operation(
                "Opens a session, or returns the one that is open under the id",
                session,
                (*_REST_ERRORS, ErrorCode.BODY_TIMEOUT, ErrorCode.RATE_LIMIT_EXCEEDED),
                body={
                    "content": _json(
                        _object({"id": {"type": ["string", "null"], "pattern": _NAME["pattern"]}}, [], closed=True)
                    )
                },
            ),
            "get": _operation(
                "The caller's sessions, in a stable order",
                {"description": "A page.", "content": _json(_ref("SessionList"))},
                parameters=[
                    _query(
                        "limit", "Sessions a page.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
                    ),
                    _query("after", "The last id of the page before.", {"type": "string", "pattern": "^[!-~]{0,256}$"}),
                ],
            ),
        },
        "/v1/sessions/{session}": {
            "get": _operation("Describes a session", session, not_found, parameters=one),
            "delete": _operation(
                "Ends a session",
                {"description": "It has ended.", "content": _json(_ref("EndedSession"))},
                (*not_found, ErrorCode.TABLE_UNAVAILABLE),
                parameters=[*one, _query("cancel_calls", "Ends its running calls too.", {"type": "boolean"})],
            ),
        },
    }


def _models() -> Schema:
    listing: Schema = {"description": "The models of all engines.", "content": _json(_ref("ModelList"))}
    model: Schema = {"description": "The model.", "content": _json(_ref("Model"))}
    return {
        "/v1/models": {"get": _operation("Models", listing)},
        "/v1/models/{name}": {
            "get": _operation(
                "One model",
                model,
                (*_REST_ERRORS, ErrorCode.MODEL_NOT_FOUND),
                parameters=[_path("name", "The model's id; it may hold slashes.", {"type": "string", "minLength": 1})],
            )
        },
    }


def _probes() -> Schema:
    alive: Schema = {"description": "Alive.", "content": _json(_object({"status": _STRING}))}
    ready = _operation(
        "Whether this replica should get traffic",
        {"description": "It should.", "content": _json(_ref("Readiness"))},
        (),
        needs_key=False,
    )
    ready["responses"]["503"] = {"description": "It should not.", "content": _json(_ref("Readiness"))}
    metrics: Schema = {"description": "Prometheus text.", "content": {"text/plain": {"schema": _STRING}}}
    schema: Schema = {"description": "OpenAPI 3.1.", "content": _json({"type": "object"})}
    return {
        "/healthz": {"get": _operation("Whether the process is alive", alive, (), needs_key=False)},
        "/readyz": {"get": ready},
        "/metrics": {"get": _operation("Metrics", metrics, (), needs_key=False)},
        "/openapi.json": {"get": _operation("This schema", schema, (), needs_key=False)},
    }


def _schemas() -> Schema:
    session = {
        "id": _STRING,
        "object": {"const": "session"},
        "program": _STRING,
        "engine": _STRING_OR_NULL,
        "service_ms": _NUMBER,
        "path_ms": _NUMBER,
        "wait_ms": _NUMBER,
        "calls": _COUNT,
        "prompt_tokens": _COUNT,
        "generated_tokens": _COUNT,
        "created": _COUNT,
        "last_active": _COUNT,
    }
    listing = {
        "object": {"const": "list"},
        "data": {"type": "array", "items": _ref("Session")},
        "first_id": _STRING_OR_NULL,
        "last_id": _STRING_OR_NULL,
        "has_more": {"type": "boolean"},
    }
    ended = {
        "id": _STRING,
        "object": {"const": "session.deleted"},
        "deleted": {"const": True},
        "cancelled_calls": _COUNT,
    }
    error = {"message": _STRING, "type": _STRING_OR_NULL, "param": _STRING_OR_NULL, "code": {}}
    lines: Schema = {"type": "array", "items": _STRING}
    table = _object({"loaded": {"type": "boolean"}, "connected": {"type": "boolean"}, "cause": _STRING})
    readiness = {"ready": {"type": "boolean"}, "reasons": lines, "degraded": lines, "table": table}
    models: Schema = {"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")}}
    return {
        "Session": _object(session),
        "SessionList": _object(listing),
        "EndedSession": _object(ended),
        "Model": _object({"id": _STRING}),
        "ModelList": _object(models),
        "Readiness": _object(readiness),
        "Error": _object({"error": _object(error)}),
    }


def document() -> Schema:
    """The whole schema. It depends on nothing but the code."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Autellix controller",
            "version": "1",
            "description": "The OpenAI API, sessions beside it, and probes. See docs/http-api.md.",
        },
        "paths": {
            **{route.path: _call(route) for route in ROUTES.values()},
            **_models(),
            **_sessions(),
            **_probes(),
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
        "security": [{"key": []}, {}],
    }
