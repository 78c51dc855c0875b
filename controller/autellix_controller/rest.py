"""Everything but the hot path, as a FastAPI application: sessions, models, health, readiness, metrics."""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from autellix_controller import openapi
from autellix_controller.access import Access
from autellix_controller.engines.fleet import Fleet
from autellix_controller.errors import ApiError, ErrorCode, invalid, no_model, shown
from autellix_controller.sessions import api as sessions
from autellix_controller.sessions.programs import Programs


class TableState(msgspec.Struct, frozen=True):
    """What the replica knows of the process table's store."""

    loaded: bool
    """The table was read completely once."""
    connected: bool
    """The last contact succeeded."""
    cause: str
    """Why not; empty when all is well. It stays as it is while nothing changes."""


class Readiness(msgspec.Struct, frozen=True):
    """Whether the replica should get traffic, and what people should know."""

    ready: bool
    reasons: list[str]
    """Why it is not ready."""
    degraded: list[str]
    """What does not work although it is ready."""
    table: TableState


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _answer(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    response = Response(error.body(), error.status, headers, media_type="application/json")
    response.raw_headers.extend(error.headers())
    return response


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _answer(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return _answer(invalid(f"{name}: {first['msg']}.", param=name))


def _methods(request: Request) -> list[str]:
    """What the path takes, of all its routes: the framework names those of the first."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{shown(request.url.path)} does not take {shown(request.method)}."
        return _answer(ApiError(ErrorCode.METHOD_NOT_ALLOWED, message), {"allow": ", ".join(_methods(request))})
    message = f"There is no route {shown(request.method)} {shown(request.url.path)}."
    return _answer(ApiError(ErrorCode.ROUTE_NOT_FOUND, message))


async def _on_defect(_: Request, error: Exception) -> Response:
    return _answer(ApiError(ErrorCode.INTERNAL, "The controller failed to serve the request."))


def application(
    *,
    access: Access,
    programs: Programs,
    cancel: Callable[[str], int],
    fleet: Fleet,
    registry: CollectorRegistry,
    readiness: Callable[[], Readiness],
    body_seconds: float,
) -> FastAPI:
    """The application. ``cancel`` ends the running calls of a program; ``body_seconds``: to receive a body."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_defect)
    app.include_router(sessions.routes(access, programs, cancel=cancel, body_seconds=body_seconds))

    def check_key(request: Request) -> None:
        authorization = request.headers.get("authorization")
        access.owner(authorization.encode("latin-1") if authorization is not None else None)

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        """The models that engines serve."""
        check_key(request)
        return _json({"object": "list", "data": fleet.models()})

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> Response:
        """One model."""
        check_key(request)
        for entry in fleet.models():
            if entry.get("id") == name:
                return _json(entry)
        raise no_model(name)

    @app.get("/healthz")
    async def healthz() -> Response:
        """The process is alive."""
        return _json({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether this replica should get traffic: 200 or 503."""
        state = readiness()
        return _json(state, 200 if state.ready else 503)

    @app.get("/openapi.json")
    async def schema() -> Response:
        """The schema of this API."""
        return _json(openapi.document())

    @app.get("/metrics")
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app
