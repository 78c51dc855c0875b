"""Spans of calls: child of the client's, parent of the engine's, with the receipt as attributes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.fake_engine import fake_engine, status
from support.running_controller import running_controller

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Takes traces over OTLP/HTTP."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []

    async def take(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        self.spans += [span for one in message.resource_spans for scope in one.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    found = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    try:
        yield found
    finally:
        await runner.cleanup()


def attributes(span: Span) -> dict[str, object]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


async def test_a_call_has_a_span_between_those_of_client_and_engine() -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "x-autellix-session": "s1"}
    async with collector() as traces, fake_engine() as engine:
        async with running_controller(engine, trace_endpoint=traces.url) as replica:
            body = replica.call()
            async with replica.http.post("/v1/chat/completions", json=body, headers=headers) as response:
                receipt = response.headers
            engine.script = status(501)
            await replica.chat()
        first, second = sorted(traces.spans, key=lambda span: span.start_time_unix_nano)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert engine.calls[0].headers["traceparent"] == f"00-{TRACE}-{first.span_id.hex()}-01"
    assert engine.calls[0].headers["tracestate"] == "vendor=1"
    assert (first.name, first.kind) == ("POST /v1/chat/completions", Span.SPAN_KIND_SERVER)
    found = attributes(first)
    for name in ("program", "engine", "route", "accounting"):
        assert found[f"autellix.{name}"] == receipt[f"x-autellix-{name}"]
    assert found["autellix.service_ms"] == float(receipt["x-autellix-service-ms"])
    assert found["autellix.level"] == int(receipt["x-autellix-level"])
    assert found["http.response.status_code"] == 200
    assert second.trace_id.hex() != TRACE
    assert attributes(second)["http.response.status_code"] == 502
    assert second.status.message == "The engine answered with status 501."


async def test_what_the_client_does_not_sample_is_not_sent() -> None:
    async with collector() as traces, fake_engine() as engine:
        async with running_controller(engine, trace_endpoint=traces.url) as replica:
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
            await replica.json("POST", "/v1/chat/completions", json=replica.call(), headers=headers)
        assert engine.calls[0].headers["traceparent"].startswith(f"00-{TRACE}-")
        assert engine.calls[0].headers["traceparent"].endswith("-00")
    assert traces.spans == []


async def test_calls_go_on_while_the_collector_is_away() -> None:
    away = "http://127.0.0.1:9/v1/traces"
    async with fake_engine() as engine, running_controller(engine, trace_endpoint=away) as replica:
        answers = await asyncio.gather(*(replica.chat() for _ in range(5)))
        assert {response.status for response, _ in answers} == {200}
