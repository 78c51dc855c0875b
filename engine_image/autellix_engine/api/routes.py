"""The routes of the engine's own API: call records, state, programs that ended."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from autellix_engine.records.channel import SchedulerUnreachable
from autellix_engine.records.hub import RecordHub
from autellix_engine.records.ring import Cursor, InvalidCursor
from autellix_wire import records as wire
from autellix_wire.context import MAX_ID_LENGTH

router: Final = APIRouter()


@dataclass(frozen=True)
class EngineApi:
    """What the routes work on; lies at ``app.state.autellix``."""

    hub: RecordHub
    end_program: Callable[[str], Awaitable[None]]
    """Tells the scheduler to forget a program. Raises SchedulerUnreachable."""
    stopping: Callable[[], bool]
    """Whether the server is about to stop: open streams end then, since the server waits for them."""


@router.get(wire.RECORDS_PATH, response_model=None)
async def records(request: Request, after: str | None = None) -> Response:
    """Call records past a cursor, as newline-delimited JSON, for ever."""
    api = _api(request)
    try:
        reader = api.hub.open(None if after is None else Cursor.parse(after))
    except InvalidCursor as error:
        return _error(400, str(error), kind="invalid_request_error", code="invalid_cursor", param="after")
    lines = api.hub.stream(reader, api.stopping, time.monotonic)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@router.get(wire.STATE_PATH, response_model=None)
async def state(request: Request) -> Response:
    """What the engine is doing: its load, the extent of the record stream, the scheduler's bounded dump."""
    hub = _api(request).hub
    return _json(
        200,
        {
            "engine": hub.load.engine,
            "incarnation": hub.load.incarnation,
            "policy": hub.policy,
            "load": hub.load,
            "records": {"oldest_seq": hub.ring.oldest_seq, "last_seq": hub.ring.last_seq, "readers": hub.readers},
            "scheduler": hub.state,
        },
    )


@router.delete(wire.PROGRAMS_PATH + "/{program:path}", response_model=None)
async def end_program(request: Request, program: str) -> Response:
    """Forgets a program, known or not, before the next call or step. Its id may contain slashes, as calls bring it."""
    if not 0 < len(program) <= MAX_ID_LENGTH:
        message = f"program: not an id of 1 to {MAX_ID_LENGTH} characters"
        return _error(400, message, kind="invalid_request_error", code="invalid_program", param="program")
    try:
        await _api(request).end_program(program)
    except SchedulerUnreachable as error:
        retry = {"retry-after": "1"}
        return _error(503, str(error), kind="server_error", code="scheduler_unreachable", headers=retry)
    return Response(status_code=204)


def _api(request: Request) -> EngineApi:
    api: EngineApi = request.app.state.autellix
    return api


def _json(status: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def _error(
    status: int,
    message: str,
    *,
    kind: str,
    code: str,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return _json(status, {"error": error}, headers)
