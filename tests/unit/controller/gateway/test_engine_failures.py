"""What clients see when engines fail, through a real server to scripted engines."""

import asyncio
import errno
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.fake_engine import (
    DONE,
    Call,
    FakeEngine,
    Script,
    answer,
    completion,
    cut,
    event,
    fake_engine,
    hang,
    pieces,
    raw,
    status,
)
from support.running_controller import Replica, eventually, running_controller


def error_of(body: bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def stream_error(body: bytes) -> dict[str, Any]:
    """The error event at the end of a stream; nothing may follow it."""
    last = body.rstrip(b"\n").rsplit(b"\n\n", 1)[-1]
    assert last.startswith(b"data: ")
    return error_of(last.removeprefix(b"data: "))


def error_event(code: int) -> bytes:
    """An error as vLLM says it within a stream."""
    error = {"message": "lost", "type": "t", "param": None, "code": code}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"


FAILURES: list[tuple[str, Script, int, str]] = [
    ("500", status(500), 502, "engine_error"),
    ("502", status(502), 502, "engine_error"),
    ("503", status(503), 503, "no_engine"),
    ("501", status(501), 502, "engine_error"),
    ("redirect", status(302, location="http://127.0.0.1:1/"), 502, "engine_error"),
    ("engine key refused", status(401), 502, "engine_error"),
    ("cut before the answer", cut, 502, "engine_error"),
    ("html", raw(b"<html>", "text/html"), 502, "engine_error"),
    ("no media type", raw(b"{}", ""), 502, "engine_error"),
    ("broken json", raw(b'{"choices": ['), 502, "engine_error"),
    ("json of another shape", raw(b'{"choices": 5}'), 502, "engine_error"),
    ("binary", raw(b"\xff\xfe\x00"), 502, "engine_error"),
    ("deep json", raw(b"[" * 100_000), 502, "engine_error"),
    ("aborted", raw(json.dumps(completion(finish_reason="abort")).encode()), 502, "engine_error"),
    ("empty stream", pieces(), 502, "engine_error"),
    ("stream cut at once", pieces(then="cut"), 502, "engine_error"),
    ("response cancelled", raw(b'{"object": "response", "status": "cancelled", "output": []}'), 502, "engine_error"),
    ("stream that begins with an error", pieces(error_event(500), DONE), 502, "engine_error"),
    (
        "the same in two pieces",
        pieces(error_event(500)[:40], error_event(500)[40:], DONE, pause=0.05),
        502,
        "engine_error",
    ),
    ("stream that begins with unreadiness", pieces(error_event(503), DONE), 503, "no_engine"),
    ("stream aborted at once", pieces(event(finish_reason="abort"), DONE), 502, "engine_error"),
]


@pytest.mark.parametrize(
    ("script", "code", "name"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES]
)
async def test_a_failed_engine_gives_one_openai_error(script: Script, code: int, name: str) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        response, body = await replica.chat("s1")
        assert response.status == code
        assert response.headers["content-type"] == "application/json"
        assert error_of(body)["code"] == name
        assert response.headers["retry-after"] == "1"
        assert await replica.metric("autellix_controller_running_calls") == 0


@pytest.mark.parametrize(
    "script", [case[1] for case in FAILURES if case[0] not in ("501", "redirect", "engine key refused")]
)
async def test_another_engine_serves_what_one_failed_before_its_first_byte(script: Script) -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        first, _ = await replica.chat("s1")
        pinned, other = (a, b) if a.calls else (b, a)
        pinned.script = script
        response, body = await replica.chat("s1")
        assert response.status == 200
        assert json.loads(body)["choices"][0]["message"]["content"] == other.name
        assert response.headers["x-autellix-route"] == "spilled"
        # One failure does not cost the program its warm cache.
        pinned.script = answer
        again, _ = await replica.chat("s1")
        assert again.headers["x-autellix-route"] == "pinned"
        assert again.headers["x-autellix-engine"] == first.headers["x-autellix-engine"]
        assert {call.headers["x-request-id"] for call in (pinned.calls[1], other.calls[0])} == {
            response.headers["x-request-id"]
        }
        assert await replica.metric("autellix_controller_retries_total") == 1


@pytest.mark.parametrize("second", ["answers", "refuses connections"])
async def test_a_call_that_was_tried_again_is_charged_once(second: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice tokens_per_minute=1000\n")
    headers = {"authorization": "Bearer key-of-alice"}
    spent: list[int] = []
    async with (
        fake_engine("a", with_records=False) as a,
        fake_engine("b", with_records=False) as b,
        running_controller(a, b, api_keys_file=keys, headers=headers, probe_seconds=60) as replica,
    ):
        replica.controller.gateway._rates.spend_tokens = lambda tenant, tokens: spent.append(tokens)  # type: ignore[method-assign]
        await replica.chat("s1")
        pinned, other = (a, b) if a.calls else (b, a)
        pinned.script = status(500)
        if second != "answers":
            await other.stop()
        response, _ = await replica.chat("s1")
        assert response.status == (200 if second == "answers" else 503)
        _, session = await replica.json("GET", "/v1/sessions/s1")
        assert session["calls"] == 2
        assert len(spent) == 2
        if second == "answers":
            assert spent == [5, 5], "as the answer says, and nothing for the attempt that failed"
        assert await replica.metric("autellix_controller_estimated_calls_total") == 2


async def test_running_out_of_files_takes_no_engine_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_engine() as engine, running_controller(engine, probe_seconds=0.1) as replica:
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def exhausted(factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
            sock = options.get("sock")
            if port == engine.port or (sock is not None and sock.getpeername()[1] == engine.port):
                raise OSError(errno.EMFILE, "Too many open files")
            return await connect(factory, host, port, **options)

        monkeypatch.setattr(loop, "create_connection", exhausted)
        for _ in range(4):
            response, body = await replica.chat()
            assert (response.status, response.headers["retry-after"]) == (429, "1")
            assert (error_of(body)["code"], error_of(body)["param"]) == ("contended", "open_files")
        assert replica.controller.readiness().degraded == []
        monkeypatch.undo()
        assert (await replica.chat())[0].status == 200


async def test_there_is_one_retry_and_no_more() -> None:
    async with (
        fake_engine("a") as a,
        fake_engine("b") as b,
        fake_engine("c") as c,
        running_controller(a, b, c) as replica,
    ):
        for engine in (a, b, c):
            engine.script = status(500)
        response, _ = await replica.chat("s1")
        assert response.status == 502
        assert len(a.calls) + len(b.calls) + len(c.calls) == 2


@pytest.mark.parametrize("then", ["cut", "end"])
async def test_a_stream_that_breaks_ends_with_an_error_event(then: str) -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        a.script = b.script = pieces(event("x"), then=then)
        response, body = await replica.chat("s1", stream=True)
        assert response.status == 200
        assert body.startswith(event("x"))
        assert stream_error(body)["code"] == "engine_error"
        assert len(a.calls) + len(b.calls) == 1, "no retry after the first byte"


async def test_an_error_event_after_half_an_event_stands_on_its_own() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(event("x"), b'data: {"id"', then="cut")
        _, body = await replica.chat("s1", stream=True)
        assert stream_error(body)["code"] == "engine_error"


async def test_an_abort_of_the_engine_in_mid_stream_is_an_error() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(event("x"), event(finish_reason="abort"), DONE, pause=0.02)
        _, body = await replica.chat("s1", stream=True)
        assert body.startswith(event("x") + event(finish_reason="abort"))
        assert DONE not in body
        assert stream_error(body)["message"] == "The engine aborted the call."


@pytest.mark.parametrize(("code", "counted", "degraded"), [(500, 502, True), (400, 400, False)])
async def test_an_error_in_mid_stream_passes_as_the_last_event_and_counts_as_what_it_is(
    code: int, counted: int, degraded: bool
) -> None:
    async with fake_engine() as engine, running_controller(engine, probe_seconds=60) as replica:
        engine.script = pieces(event("x"), error_event(code), DONE, pause=0.02)
        for _ in range(3):
            response, body = await replica.chat(stream=True)
            assert (response.status, body) == (200, event("x") + error_event(code))
        name = f'autellix_controller_calls_total{{path="/v1/chat/completions",status="{counted}"}}'
        assert await replica.metric(name) == 3
        assert len(engine.calls) == 3, "no retry after the first byte"
        assert bool(replica.controller.readiness().degraded) is degraded


async def test_a_stream_that_begins_with_the_clients_error_is_the_same_as_an_answer_with_it() -> None:
    async with fake_engine("a") as a, fake_engine("b") as b, running_controller(a, b) as replica:
        a.script = b.script = pieces(error_event(400), DONE)
        response, body = await replica.chat(stream=True)
        assert (response.status, response.headers["content-type"]) == (400, "application/json")
        assert error_of(body) == {"message": "lost", "type": "t", "param": None, "code": 400}
        assert len(a.calls) + len(b.calls) == 1, "another engine would say the same"
        assert replica.controller.readiness().degraded == []


async def test_a_streamed_response_that_was_cancelled_ends_with_an_error() -> None:
    cancelled = b'event: response.completed\ndata: {"response":{"status":"cancelled"}}\n\n'
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(b"event: response.created\ndata: {}\n\n", cancelled, pause=0.02)
        async with replica.http.post("/v1/responses", json={"model": "tiny", "input": "x", "stream": True}) as response:
            body = await response.read()
        assert cancelled in body
        assert b"\n\nevent: error\ndata: " in body
        assert await replica.metric('autellix_controller_calls_total{path="/v1/responses",status="502"}') == 1


async def test_the_responses_api_gets_its_own_error_event() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(b"event: x\ndata: {}\n\n", then="cut")
        async with replica.http.post("/v1/responses", json={"model": "tiny", "input": "x", "stream": True}) as response:
            body = await response.read()
        name, data = body.rstrip(b"\n").rsplit(b"\n\n", 1)[-1].split(b"\n")
        assert name == b"event: error"
        assert json.loads(data.removeprefix(b"data: "))["type"] == "error"


async def test_responses_streams_need_no_done() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(b"event: response.completed\ndata: {}\n\n")
        async with replica.http.post("/v1/responses", json={"model": "tiny", "input": "x", "stream": True}) as response:
            assert await response.read() == b"event: response.completed\ndata: {}\n\n"


async def test_a_response_that_ends_before_its_last_event_ends_with_an_error() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(b"event: response.created\ndata: {}\n\n")
        async with replica.http.post("/v1/responses", json={"model": "tiny", "input": "x", "stream": True}) as response:
            body = await response.read()
        assert b"\n\nevent: error\ndata: " in body


async def test_a_stream_that_broke_is_not_counted_as_a_success() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(event("x"), then="cut")
        await replica.chat(stream=True)
        name = 'autellix_controller_calls_total{path="/v1/chat/completions",status="502"}'
        assert await replica.metric(name) == 1


async def test_a_dead_engine_loses_its_programs_to_another_and_no_call_fails() -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        await replica.chat("s1")
        dead, alive = (a, b) if a.calls else (b, a)
        await dead.stop()
        response, body = await replica.chat("s1")
        assert response.status == 200
        assert json.loads(body)["choices"][0]["message"]["content"] == alive.name
        _, session = await replica.json("GET", "/v1/sessions/s1")
        assert "http://" + session["engine"] == alive.url
        again, _ = await replica.chat("s1")
        assert again.headers["x-autellix-engine"] == session["engine"]


async def test_a_dead_engine_comes_back_by_probe_and_programs_stay_where_they_went() -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        await replica.chat("s1")
        dead, alive = (a, b) if a.calls else (b, a)
        await dead.stop()
        await replica.chat("s1")
        await dead.start()
        dead_name, alive_name = dead.url.removeprefix("http://"), alive.url.removeprefix("http://")
        await eventually(lambda: not replica.controller.readiness().degraded, "the engine is back")
        response, _ = await replica.chat("s1")
        assert (response.headers["x-autellix-engine"], response.headers["x-autellix-route"]) == (alive_name, "pinned")
        names = {(await replica.chat(f"n{n}"))[0].headers["x-autellix-engine"] for n in range(20)}
        assert names == {dead_name, alive_name}


async def test_no_engine_at_all_is_said_with_a_time_to_come_back() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        await engine.stop()
        for _ in range(2):
            response, body = await replica.chat("s1")
            assert (response.status, error_of(body)["code"]) == (503, "no_engine")
            assert response.headers["retry-after"]
        # A probe that was under way may have its say before the next one finds nobody.
        await eventually(
            lambda: any("not reachable" in line for line in replica.controller.readiness().degraded),
            "the engine is said to be away",
        )


async def test_an_outlier_leaves_rotation_and_returns_by_probe() -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        a.script, a.healthy = status(500), False
        for n in range(30):
            response, _ = await replica.chat(f"s{n}")
            assert response.status == 200
        seen = len(a.calls)
        assert seen <= 4, "three failures in a row are enough"
        a.script, a.healthy = answer, True
        await eventually(lambda: not replica.controller.readiness().degraded, "the engine is back")
        for n in range(20):
            await replica.chat(f"t{n}")
        assert len(a.calls) > seen


async def test_the_last_engine_is_tried_even_as_an_outlier() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = status(500)
        for _ in range(4):
            await replica.chat()
        engine.script = answer
        assert (await replica.chat())[0].status == 200


async def deadline(replica: Replica, **fields: Any) -> dict[str, Any]:
    response, body = await replica.chat("s1", **fields)
    if fields.get("stream") and response.status == 200:
        return stream_error(body)
    assert response.status == 504
    return error_of(body)


async def test_an_engine_that_never_answers_costs_only_its_own_calls() -> None:
    async with (
        fake_engine("engine-a") as a,
        fake_engine("engine-b") as b,
        running_controller(a, b, first_byte_deadline_seconds=2) as replica,
    ):
        a.script = hang
        answers = await asyncio.gather(*(replica.chat(f"s{n}") for n in range(20)))
        served = [json.loads(body) for response, body in answers if response.status == 200]
        assert len(served) == len(b.calls) > 0
        late = [body for response, body in answers if response.status == 504]
        assert {error_of(body)["code"] for body in late} == {"deadline_exceeded"}
        await eventually(lambda: a.running == 0, "the engine was told to stop")


async def test_a_stream_that_falls_silent_ends_at_the_idle_deadline() -> None:
    async with fake_engine() as engine, running_controller(engine, idle_deadline_seconds=0.2) as replica:
        engine.script = pieces(event("x"), then="hang")
        assert "sent nothing for 0.2 s" in (await deadline(replica, stream=True))["message"]
        await eventually(lambda: engine.aborted == 1, "the engine was told to stop")


async def test_a_call_ends_at_its_total_deadline_and_the_engine_is_not_blamed() -> None:
    async with fake_engine() as engine, running_controller(engine, total_deadline_seconds=0.4) as replica:
        engine.script = pieces(*(event("x") for _ in range(1000)), pause=0.05)
        for _ in range(4):
            assert "within 0.4 s" in (await deadline(replica, stream=True))["message"]
        assert replica.controller.readiness().degraded == []


async def test_the_total_deadline_counts_from_the_arrival_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_engine() as engine, running_controller(engine, total_deadline_seconds=0.3) as replica:
        opened = replica.controller.gateway._programs.open

        async def slowly(*program: Any, **options: Any) -> Any:
            await asyncio.sleep(0.5)
            return await opened(*program, **options)

        monkeypatch.setattr(replica.controller.gateway._programs, "open", slowly)
        assert "within 0.3 s" in (await deadline(replica))["message"]
        assert replica.controller.readiness().degraded == []


async def test_an_engine_that_takes_no_connection_is_left_at_the_connect_deadline() -> None:
    settings: dict[str, Any] = {"connect_deadline_seconds": 0.2, "probe_seconds": 60}
    async with fake_engine() as engine, running_controller(engine, **settings) as replica:
        await engine.stop()
        # A listener whose queue of connections is full answers nobody.
        with socket.socket() as full, socket.socket() as first, socket.socket() as second:
            full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            full.bind(("127.0.0.1", engine.port))
            full.listen(0)
            for filler in (first, second):
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", engine.port))
            async with asyncio.timeout(60):
                response, body = await replica.chat()
                assert (response.status, error_of(body)["code"]) == (503, "no_engine")
                assert replica.controller.readiness().degraded == [], "once is no proof"
                for _ in range(2):
                    await replica.chat()
            assert any("no connection within 0.2 s" in line for line in replica.controller.readiness().degraded)


async def test_an_answer_larger_than_the_limit_is_an_error() -> None:
    async with fake_engine() as engine, running_controller(engine, answer_limit_bytes=2048) as replica:
        engine.script = raw(json.dumps({"pad": "x" * 4096}).encode())
        for _ in range(4):
            response, body = await replica.chat()
            assert response.status == 502
            assert "larger than 2048 bytes" in error_of(body)["message"]
        assert replica.controller.readiness().degraded == [], "the client asked for it"


async def test_a_compressed_answer_is_an_error() -> None:
    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        assert call.headers["accept-encoding"] == "identity"
        return web.Response(body=b"{}", headers={"content-type": "application/json", "content-encoding": "br"})

    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        response, _ = await replica.chat()
        assert response.status == 502


async def test_the_loss_of_an_engine_moves_its_programs_at_once_and_no_other() -> None:
    async with (
        fake_engine("a") as a,
        fake_engine("b") as b,
        fake_engine("c") as c,
        running_controller(a, b, c, spill_calls=100) as replica,
    ):
        before: dict[str, str] = {}
        while any(len(engine.calls) < 3 for engine in (a, b, c)):
            session = f"s{len(before)}"
            before[session] = await served_by(replica, session)
        sessions = list(before)
        lost = next(engine for engine in (a, b, c) if engine.url.endswith(before["s0"]))
        await lost.stop()
        async with asyncio.timeout(60):
            after = dict(zip(sessions, await asyncio.gather(*(served_by(replica, s) for s in sessions)), strict=True))
        moved = {session for session in sessions if before[session] != after[session]}
        assert moved == {session for session in sessions if before[session] == before["s0"]}
        # For good, although the engine comes back: the cache is elsewhere now.
        await lost.start()
        await eventually(lambda: replica.controller.fleet.troubles() == [], "it is back in rotation")
        assert {session: await served_by(replica, session) for session in sessions} == after


async def served_by(replica: Replica, session: str) -> str:
    response, _ = await replica.chat(session)
    assert response.status == 200
    return response.headers["x-autellix-engine"]
