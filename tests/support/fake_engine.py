"""A scripted engine on loopback: a real HTTP server that speaks the OpenAI API, and our record stream if asked to."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from autellix_wire import context, records
from autellix_wire.records import CallRecord, Hello, LoadReport, Message, ProgramTotals

MODEL = "tiny"


@dataclass
class Call:
    """One call as the engine got it."""

    path: str
    body: dict[str, Any]
    raw: bytes
    headers: dict[str, str]

    @property
    def xargs(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body.get(context.XARGS_FIELD, {})
        return found


Script = Callable[["FakeEngine", web.Request, Call], Awaitable[web.StreamResponse]]


def completion(text: str = "hello", finish_reason: str = "stop") -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def event(text: str = "", finish_reason: str | None = None) -> bytes:
    """One event of a streamed answer."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def start_stream(request: web.Request) -> web.StreamResponse:
    """Begins a stream of events."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


async def answer(engine: "FakeEngine", request: web.Request, call: Call) -> web.StreamResponse:
    """The usual script: answers at once, streamed if asked to."""
    if not call.body.get("stream"):
        return web.json_response(completion(engine.name))
    response = await start_stream(request)
    for piece in (event(engine.name), event(" done"), event(finish_reason="stop"), DONE):
        await response.write(piece)
    return response


def status(code: int, body: Any = None, **headers: str) -> Script:
    """A script that answers with a status."""

    async def script(engine: "FakeEngine", request: web.Request, call: Call) -> web.StreamResponse:
        content = body if body is not None else {"error": {"message": "no", "type": "t", "param": None, "code": None}}
        return web.json_response(content, status=code, headers=headers)

    return script


def raw(content: bytes, content_type: str = "application/json", code: int = 200) -> Script:
    """A script that answers with the given bytes."""

    async def script(engine: "FakeEngine", request: web.Request, call: Call) -> web.StreamResponse:
        return web.Response(body=content, status=code, headers={"content-type": content_type})

    return script


def pieces(*parts: bytes, then: str = "end", pause: float = 0.0) -> Script:
    """A script that streams parts and then ends, cuts the connection, or hangs."""

    async def script(engine: "FakeEngine", request: web.Request, call: Call) -> web.StreamResponse:
        response = await start_stream(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(pause)
        if then == "hang":
            await asyncio.Event().wait()
        if then == "cut":
            assert request.transport is not None
            request.transport.abort()
        return response

    return script


async def hang(engine: "FakeEngine", request: web.Request, call: Call) -> web.StreamResponse:
    """A script that never answers."""
    await asyncio.Event().wait()
    raise AssertionError


async def cut(engine: "FakeEngine", request: web.Request, call: Call) -> web.StreamResponse:
    """A script that cuts the connection before it answers."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class FakeEngine:
    """The engine's state; ``script`` may be changed at any time."""

    def __init__(self, name: str, *, with_records: bool, key: str | None, model: str) -> None:
        self.name, self.with_records, self.model = name, with_records, model
        self.keys = {key} if key else set()
        """Each of them opens the engine; none: it is open."""
        self.refused = 0
        """Requests without one of them."""
        self.url = ""
        self.script: Script = answer
        self.healthy = True
        self.state_status = 200
        """How the engine answers when it is asked whether it keeps records."""
        self.asked_for_state = 0
        self.calls: list[Call] = []
        self.running = 0
        self.aborted = 0
        self.ended_programs: list[str] = []
        self.forgets = asyncio.Event()
        """Cleared: it is told that a program ended, and does not answer."""
        self.forgets.set()
        self.incarnation = "one"
        self.kept: list[CallRecord] = []
        self.cursors: list[str | None] = []
        self.service_ms = 100.0
        """What a call is charged with."""
        self.others = 0
        """Calls of somebody else, for the load report."""
        self.report_seconds = 0.2
        """Between two load reports."""
        self._totals: dict[str, ProgramTotals] = {}
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 30, middlewares=[self._guard])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        if self.with_records:
            app.router.add_get(records.RECORDS_PATH, self._records)
            app.router.add_get(records.STATE_PATH, self._state)
            app.router.add_delete(records.PROGRAMS_PATH + "/{program}", self._end_program)
        app.router.add_post("/{path:.*}", self._call)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def publish(self, record: CallRecord) -> None:
        """Adds a record to the stream."""
        async with self._news:
            self.kept.append(record)
            self._news.notify_all()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.keys and request.path != "/health" and shown not in self.keys:
            self.refused += 1
            return web.json_response({"error": {"message": "engine key"}}, status=401)
        return await handler(request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def _state(self, request: web.Request) -> web.Response:
        self.asked_for_state += 1
        state = {"policy": "plas", "scheduler": {"queue_bounds_ms": [1000, 2000]}}
        return web.json_response(state, status=self.state_status)

    async def _end_program(self, request: web.Request) -> web.Response:
        self.ended_programs.append(request.match_info["program"])
        await self.forgets.wait()
        return web.Response(status=204)

    async def _records(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        with contextlib.suppress(ConnectionError):  # the reader has gone
            await self._tell(request, response)
        return response

    async def _tell(self, request: web.Request, response: web.StreamResponse) -> None:
        after = request.query.get("after")
        self.cursors.append(after)
        incarnation, _, seq = (after or "").partition(":")
        sent = int(seq) if incarnation == self.incarnation else 0
        await response.prepare(request)

        async def write(message: Message) -> None:
            await response.write(records.encode(message))

        await write(Hello(engine=self.name, incarnation=self.incarnation, policy="plas", next_seq=len(self.kept) + 1))
        loop = asyncio.get_running_loop()
        reported_at = float("-inf")
        while True:
            for record in self.kept[sent:]:
                await write(record)
            sent = len(self.kept)
            if (left := reported_at + self.report_seconds - loop.time()) <= 0:
                running = self.running + self.others
                await write(LoadReport(engine=self.name, incarnation=self.incarnation, running=running, waiting=0))
                reported_at, left = loop.time(), self.report_seconds
            async with self._news:
                if sent == len(self.kept):
                    try:
                        await asyncio.wait_for(self._news.wait(), left)
                    except TimeoutError:
                        continue

    async def _call(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = Call(request.path_qs, json.loads(content), content, headers)
        self.calls.append(call)
        self.running += 1
        outcome = "aborted"
        try:
            response = await self.script(self, request, call)
            outcome = "finished"
            return response
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.running -= 1
            await self._charge(call, outcome)

    async def _charge(self, call: Call, outcome: Any) -> None:
        brought = context.ProgramContext.from_xargs(call.xargs)
        if brought is None or not self.with_records:
            return
        before = self._totals.get(brought.program, ProgramTotals())
        totals = ProgramTotals(service_ms=before.service_ms + self.service_ms, calls=before.calls + 1)
        self._totals[brought.program] = totals
        await self.publish(
            CallRecord(
                seq=len(self.kept) + 1,
                engine=self.name,
                incarnation=self.incarnation,
                program=brought.program,
                call=brought.call,
                thread=brought.thread,
                replica=brought.replica,
                outcome=outcome,
                service_ms=self.service_ms,
                wait_ms=1.0,
                path_ms=brought.path_ms + self.service_ms,
                program_wait_ms=brought.wait_ms + 1.0,
                totals=totals,
            )
        )


@asynccontextmanager
async def fake_engine(
    name: str = "engine-a", *, with_records: bool = True, key: str | None = None, model: str = MODEL
) -> AsyncIterator[FakeEngine]:
    """A running fake engine."""
    engine = FakeEngine(name, with_records=with_records, key=key, model=model)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
