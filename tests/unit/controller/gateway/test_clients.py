"""What the gateway does about clients: those that leave, are slow, send nonsense, or come in great number."""

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web

from support.fake_engine import DONE, Call, FakeEngine, event, fake_engine, hang, pieces, start_stream
from support.running_controller import Replica, eventually, running_controller


def request_bytes(replica: Replica, body: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    head = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def connect(replica: Replica) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(replica.settings.host, int(replica.url.rsplit(":", 1)[1]))


async def counters_are_zero(replica: Replica) -> None:
    # A call whose client left may still be on its way into the server: it has to end as well.
    async with asyncio.timeout(60):
        while await replica.metric("autellix_controller_running_calls"):
            await asyncio.sleep(0.01)
    assert replica.controller.gateway.running == 0
    assert replica.controller.gateway.body_bytes == 0
    assert replica.controller.slots.waiting == 0
    for engine in replica.controller.fleet:
        assert engine.in_flight == 0


async def queued(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
    """Accepts the call, sends the head at once, and no event for a long time."""
    await start_stream(request)
    return await hang(engine, request, call)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "script", [hang, queued, pieces(event("x"), then="hang")], ids=["before headers", "queued", "mid-stream"]
)
@pytest.mark.parametrize("session", ["s1", None])
async def test_a_client_that_leaves_ends_its_call_on_the_engine(script: Any, stream: bool, session: str | None) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        _, writer = await connect(replica)
        headers = [f"X-Autellix-Session: {session}"] if session else []
        writer.write(request_bytes(replica, json.dumps(replica.call(stream=stream)).encode(), *headers))
        await eventually(lambda: engine.running == 1, "the engine has the call")
        writer.close()
        await eventually(lambda: engine.running == 0, "the engine stopped the call")
        assert engine.aborted == 1
        await counters_are_zero(replica)
        assert replica.controller.readiness().degraded == []


async def test_a_client_that_leaves_before_its_body_is_complete_costs_nothing() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        _, writer = await connect(replica)
        writer.write(request_bytes(replica, b"x" * 100)[:-50])
        await eventually(lambda: replica.controller.gateway.running == 1, "the call has begun")
        writer.close()
        await counters_are_zero(replica)
        assert engine.calls == []


async def test_hundreds_of_aborted_calls_leave_every_counter_at_zero() -> None:
    scripts = [hang, queued, pieces(event("x"), then="hang")]

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        return await scripts[len(engine.calls) % 3](engine, request, call)

    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script

        async def come_and_go(number: int) -> None:
            try:
                async with asyncio.timeout(0.02 * (number % 5)):
                    await replica.chat(f"s{number % 7}", stream=bool(number % 2))
            except TimeoutError:
                pass

        for _ in range(4):
            await asyncio.gather(*(come_and_go(number) for number in range(100)))
        await counters_are_zero(replica)
        await eventually(lambda: engine.running == 0, "the engine is idle")


async def test_a_slow_client_stops_its_engine_instead_of_filling_memory() -> None:
    written = 0
    chunk = event("x" * 65536)

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        nonlocal written
        response = await start_stream(request)
        for _ in range(2000):
            await response.write(chunk)
            written += len(chunk)
        return response

    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.connect((replica.settings.host, int(replica.url.rsplit(":", 1)[1])))
        client.sendall(request_bytes(replica, json.dumps(replica.call(stream=True)).encode()))
        seen = -1
        async with asyncio.timeout(60):
            while seen != written or not written:
                seen = written
                await asyncio.sleep(0.3)
        assert written < 40 << 20, "what is in flight is bounded by buffers, not by the answer"
        client.close()
        await counters_are_zero(replica)


async def test_a_client_that_never_reads_is_given_up() -> None:
    async with fake_engine() as engine, running_controller(engine, idle_deadline_seconds=0.5) as replica:
        engine.script = pieces(*[event("x" * 1_000_000)] * 200)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((replica.settings.host, int(replica.url.rsplit(":", 1)[1])))
        client.sendall(request_bytes(replica, json.dumps(replica.call(stream=True)).encode()))
        await eventually(lambda: engine.running == 1, "the engine has the call")
        await eventually(lambda: engine.running == 0, "the engine was told to stop")
        await counters_are_zero(replica)
        assert replica.controller.readiness().degraded == [], "that is no fault of the engine"
        await eventually(lambda: replica.connections <= 1, "only the connection of the metrics is left")
        client.close()


async def test_more_calls_than_allowed_are_told_to_come_back() -> None:
    async with fake_engine() as engine, running_controller(engine, max_calls=2) as replica:
        engine.script = hang
        running = [asyncio.create_task(replica.chat()) for _ in range(2)]
        await eventually(lambda: engine.running == 2, "both run")
        response, body = await replica.chat()
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert json.loads(body)["error"]["code"] == "contended"
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await counters_are_zero(replica)


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("no body", {"data": b""}, 400, "invalid_request"),
    ("not json", {"data": b"{"}, 400, "invalid_request"),
    ("no object", {"data": b"[]"}, 400, "invalid_request"),
    ("not utf-8", {"data": b'{"model":"tiny","a":"\xff"}'}, 400, "invalid_request"),
    ("deep", {"data": b'{"model":"tiny","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"}, 400, "invalid_request"),
    ("no model", {"data": b"{}"}, 400, "invalid_request"),
    ("unknown model", {"data": b'{"model":"gpt-9"}'}, 404, "model_not_found"),
    ("too large", {"data": b'{"model":"tiny","a":"' + b"x" * 300_000 + b'"}'}, 413, "body_too_large"),
    ("compressed", {"data": b"\x1f\x8b", "headers": {"content-encoding": "gzip"}}, 415, "unsupported_media_type"),
    ("form", {"data": b"a=1", "headers": {"content-type": "text/plain"}}, 415, "unsupported_media_type"),
    ("empty session", {"headers": {"x-autellix-session": ""}}, 400, "invalid_request"),
    ("long session", {"headers": {"x-autellix-session": "x" * 257}}, 400, "invalid_request"),
    ("blank in session", {"headers": {"x-autellix-session": "a b"}}, 400, "invalid_request"),
    ("odd session", {"headers": {"x-autellix-session": "\u00e9t\u00e9"}}, 400, "invalid_request"),
    ("odd thread", {"headers": {"x-autellix-thread": "a b"}}, 400, "invalid_request"),
]


@pytest.mark.parametrize(("options", "code", "name"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_bad_requests_get_openai_errors_and_reach_no_engine(
    options: dict[str, Any], code: int, name: str
) -> None:
    async with fake_engine() as engine, running_controller(engine, body_limit_bytes=300_000) as replica:
        options = {"headers": {}, "data": json.dumps(replica.call()), **options}
        options["headers"] = {"content-type": "application/json", **options["headers"]}
        status, answer = await replica.json("POST", "/v1/chat/completions", **options)
        assert (status, answer["error"]["code"]) == (code, name)
        assert engine.calls == []
        await counters_are_zero(replica)


async def test_a_body_over_the_limit_is_refused_though_its_length_was_not_declared() -> None:
    async def parts() -> Any:
        for _ in range(100):
            yield b" " * 1000

    async with fake_engine() as engine, running_controller(engine, body_limit_bytes=4096) as replica:
        headers = {"content-type": "application/json"}
        status, answer = await replica.json("POST", "/v1/chat/completions", data=parts(), headers=headers)
        assert (status, answer["error"]["code"]) == (413, "body_too_large")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.2) as replica:
        reader, writer = await connect(replica)
        writer.write(request_bytes(replica, b"x" * 100)[:-50])
        assert b" 408 " in await reader.readline()
        writer.close()
        await counters_are_zero(replica)


@pytest.mark.parametrize(
    ("method", "path", "code", "name"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PUT", "/v1/sessions", 405, "method_not_allowed"),
        ("POST", "/v1/nothing", 404, "route_not_found"),
        ("GET", "/", 404, "route_not_found"),
        ("POST", "/v1/chat/completions/", 404, "route_not_found"),
        ("GET", "/v1/models/gpt-9", 404, "model_not_found"),
        ("GET", "/v1/sessions?limit=0", 400, "invalid_request"),
        ("GET", "/v1/sessions?limit=x", 400, "invalid_request"),
    ],
)
async def test_other_errors_are_openai_shaped_too(method: str, path: str, code: int, name: str) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        async with replica.http.request(method, path) as response:
            answer = await response.json()
        assert (response.status, answer["error"]["code"]) == (code, name)
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert response.headers["x-request-id"]
        if code == 405:
            assert response.headers["allow"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/v1/chat/completions", "POST"), ("/v1/sessions", "GET, POST"), ("/v1/sessions/x", "DELETE, GET")],
)
async def test_a_wrong_method_is_told_all_that_the_path_takes(path: str, allowed: str) -> None:
    async with (
        fake_engine() as engine,
        running_controller(engine) as replica,
        replica.http.request("PUT", path) as response,
    ):
        assert (response.status, response.headers.getall("allow")) == (405, [allowed])


async def test_what_a_client_sent_is_cut_short_where_an_error_repeats_it(caplog: pytest.LogCaptureFixture) -> None:
    long = "x" * 5000
    async with fake_engine() as engine, running_controller(engine) as replica:
        with caplog.at_level("INFO"):
            answers = [
                await replica.json("POST", "/v1/chat/completions", json={"model": long}),
                await replica.json("GET", f"/v1/models/{long}"),
                await replica.json("GET", f"/v1/{long}"),
                await replica.json("PUT", f"/v1/models/{long}"),
            ]
    assert [status for status, _ in answers] == [404, 404, 404, 405]
    assert all(long[:50] in answer["error"]["message"] for _, answer in answers)
    assert all(len(answer["error"]["message"]) < 300 for _, answer in answers)
    assert all(len(str(record.__dict__)) < 3000 for record in caplog.records if record.getMessage() == "call")


async def test_two_requests_on_one_connection_are_both_answered() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(event("x"), DONE)
        reader, writer = await connect(replica)
        for _ in range(2):
            writer.write(request_bytes(replica, json.dumps(replica.call(stream=True)).encode()))
            assert b" 200 " in await reader.readline()
            await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        await counters_are_zero(replica)


async def test_a_client_that_sent_its_next_request_ahead_is_noticed_when_it_leaves() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(event("x"), then="hang")
        reader, writer = await connect(replica)
        writer.write(request_bytes(replica, json.dumps(replica.call(stream=True)).encode()) * 2)
        assert b" 200 " in await reader.readline()
        writer.close()
        await eventually(lambda: engine.running == 0, "the engine stopped the call")
        await counters_are_zero(replica)
        assert len(engine.calls) == 1


async def test_streams_that_were_asked_for_ahead_come_one_after_the_other() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(*[event("x" * 100)] * 20, DONE)
        reader, writer = await connect(replica)
        writer.write(request_bytes(replica, json.dumps(replica.call(stream=True)).encode()) * 3)
        for _ in range(3):
            assert b" 200 " in await reader.readline()
            body = await reader.readuntil(b"0\r\n\r\n")
            assert body.count(b"data: ") == 21
        writer.close()
        await counters_are_zero(replica)


async def test_answers_that_were_asked_for_ahead_come_whole_and_in_order() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        reader, writer = await connect(replica)
        body = json.dumps(replica.call()).encode()
        writer.write(b"".join(request_bytes(replica, body, f"x-request-id: r{number}") for number in range(5)))
        for number in range(5):
            head = await reader.readuntil(b"\r\n\r\n")
            assert f"x-request-id: r{number}\r\n".encode() in head
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert json.loads(await reader.readexactly(size))["choices"]
        writer.close()
        await counters_are_zero(replica)


@pytest.mark.parametrize("header", ["Connection: close", "Connection: Keep-Alive, close"])
async def test_a_client_that_wants_no_more_gets_its_answer_and_the_end_of_the_connection(header: str) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        replica.server.server_state.default_headers = [(b"date", b"now")]  # as the server's clock sets it
        reader, writer = await connect(replica)
        writer.write(request_bytes(replica, json.dumps(replica.call()).encode(), header))
        head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
        writer.close()
        assert head.count(b"\r\nconnection: close") == 1
        assert head.count(b"\r\ndate: now\r\n") == 1
        assert json.loads(body)["choices"]


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_once() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        reader, writer = await connect(replica)
        body = json.dumps(replica.call()).encode()
        request = request_bytes(replica, body, "Expect: 100-continue", "Connection: close")
        writer.write(request.removesuffix(body))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.count(b"HTTP/1.1") == 1


async def test_large_bodies_one_after_the_other_are_not_taken_for_a_head() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        reader, writer = await connect(replica)
        one = request_bytes(replica, json.dumps(replica.call(pad="x" * 200_000)).encode())
        writer.write(one * 3)
        for _ in range(3):
            assert b" 200 " in await reader.readline()
            await reader.readuntil(b'"total_tokens": 5}}')
        writer.close()
        await counters_are_zero(replica)


async def test_control_characters_of_clients_cannot_break_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    from autellix_controller.logs import JsonFormatter

    async with fake_engine() as engine, running_controller(engine) as replica:
        with caplog.at_level("INFO"):
            await replica.json(
                "POST", "/v1/chat/completions", json={"model": 'x\n{"level":"error"}\u2028\x1b[31m', "messages": []}
            )
        lines = [JsonFormatter().format(record) for record in caplog.records if record.getMessage() == "call"]
        assert len(lines) == 1
        assert "\n" not in lines[0]
        assert "\x1b" not in lines[0]
        assert json.loads(lines[0])["status"] == 404


async def test_unknown_models_are_not_refused_while_no_engine_has_told_its_models() -> None:
    async with running_controller("http://127.0.0.1:9") as replica:
        response, body = await replica.chat()
        assert (response.status, json.loads(body)["error"]["code"]) == (503, "no_engine")


async def test_a_model_goes_to_the_engine_that_serves_it() -> None:
    async with fake_engine(model="m1") as a, fake_engine(model="m2") as b, running_controller(a, b) as replica:
        for engine in (a, b):
            for _ in range(3):
                response, _ = await replica.chat("s1", model=engine.model)
                assert response.status == 200
            assert len(engine.calls) == 3
        _, models = await replica.json("GET", "/v1/models")
        assert [entry["id"] for entry in models["data"]] == ["m1", "m2"]


async def test_completion_of_a_call_is_counted_by_path_and_status() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        await replica.chat()
        name = 'autellix_controller_calls_total{path="/v1/chat/completions",status="200"}'
        assert await replica.metric(name) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_replica_that_is_leaving_serves_each_call_as_the_last_one_of_its_connection(stream: bool) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        reader, writer = await connect(replica)
        call = request_bytes(replica, json.dumps(replica.call(stream=stream)).encode())
        writer.write(call)
        await eventually(lambda: len(engine.calls) == 1 and engine.running == 0, "the first call is answered")
        replica.controller.leave()
        writer.write(call)
        answers = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        first, _, second = answers.partition(b"HTTP/1.1 200 OK")[2].partition(b"HTTP/1.1 200 OK")
        assert b"connection: close" not in first
        assert b"connection: close" in second
        assert engine.name.encode() in second
        async with replica.http.get("/v1/models") as response:
            assert (response.status, response.headers["connection"]) == (200, "close")
