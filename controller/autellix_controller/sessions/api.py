"""The HTTP API of sessions."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect

from autellix_controller.access import Access
from autellix_controller.errors import ApiError, ErrorCode, invalid
from autellix_controller.sessions.identity import checked_name, new_session
from autellix_controller.sessions.programs import Programs
from autellix_controller.table.entry import ProgramEntry

#: Largest body of ``POST /v1/sessions``, bytes.
_BODY_LIMIT = 4096


class _NewSession(msgspec.Struct, forbid_unknown_fields=True):
    id: str | None = None


def describe(entry: ProgramEntry) -> dict[str, Any]:
    """A session as clients see it. Durations in milliseconds, times in Unix seconds."""
    return {
        "id": entry.session,
        "object": "session",
        "program": entry.id,
        "engine": entry.engine,
        "service_ms": round(entry.service_ms, 3),
        "path_ms": round(entry.path_ms, 3),
        "wait_ms": round(entry.wait_ms, 3),
        "calls": entry.calls,
        "prompt_tokens": sum(t.prompt_tokens for t in entry.totals.values()),
        "generated_tokens": sum(t.generated_tokens for t in entry.totals.values()),
        "created": entry.created_ms // 1000,
        "last_active": entry.last_activity_ms // 1000,
    }


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def _body(request: Request, seconds: float) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _BODY_LIMIT:
                    raise invalid(f"The body is larger than {_BODY_LIMIT} bytes.")
    except TimeoutError:
        raise ApiError(ErrorCode.BODY_TIMEOUT, f"The body did not arrive within {seconds:g} s.") from None
    except ClientDisconnect:
        raise invalid("The body broke off.") from None  # nobody is left to hear it
    return body


def _requested_id(body: bytes) -> str:
    if not body.strip():
        return new_session()
    try:
        wanted = msgspec.json.decode(body, type=_NewSession).id
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body must be a JSON object with at most the field id: {error}.") from None
    return new_session() if wanted is None else checked_name(wanted, param="id")


def routes(access: Access, programs: Programs, *, cancel: Callable[[str], int], body_seconds: float) -> APIRouter:
    """The routes under ``/v1/sessions``. Sessions belong to the caller's key.

    ``cancel`` ends the running calls of a program and says how many; ``body_seconds``: to receive a body.
    """
    router = APIRouter(prefix="/v1/sessions")

    def owner(request: Request) -> str:
        authorization = request.headers.get("authorization")
        return access.owner(authorization.encode("latin-1") if authorization is not None else None)

    @router.post("")
    async def start(request: Request) -> Response:
        """Opens a session, or returns the one that is open under the given id."""
        caller = owner(request)
        session = _requested_id(await _body(request, body_seconds))
        return _json(describe(await programs.open(caller, session, most=access.limits(caller).programs)))

    @router.get("")
    async def page(request: Request, after: str = "", limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        """Lists the caller's sessions, in no meaningful but a stable order."""
        found = programs.page(owner(request), checked_name(after, param="after") if after else "", limit + 1)
        shown = found[:limit]
        return _json(
            {
                "object": "list",
                "data": [describe(entry) for entry in shown],
                "first_id": shown[0].session if shown else None,
                "last_id": shown[-1].session if shown else None,
                "has_more": len(found) > limit,
            }
        )

    @router.get("/{session:path}")
    async def one(request: Request, session: str) -> Response:
        """Describes one session."""
        return _json(describe(programs.get(owner(request), checked_name(session, param="id"))))

    @router.delete("/{session:path}")
    async def end(request: Request, session: str, cancel_calls: bool = False) -> Response:
        """Ends a session: its figures are dropped, and engines forget it. Its running calls go on, or are cancelled
        with ``cancel_calls``."""
        ended = await programs.end(owner(request), checked_name(session, param="id"), cancel=cancel_calls)
        cancelled = cancel(ended.id) if cancel_calls else 0
        return _json({"id": session, "object": "session.deleted", "deleted": True, "cancelled_calls": cancelled})

    return router
