"""Calls that succeed, through a real server to a scripted engine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autellix_controller.engines.engine import Scheduling
from support.fake_engine import (
    DONE,
    Call,
    FakeEngine,
    completion,
    event,
    fake_engine,
    pieces,
    raw,
    start_stream,
    status,
)
from support.running_controller import eventually, running_controller

PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_path_reaches_the_engine_with_all_its_fields(path: str) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        sent = {"model": "tiny", "prompt": "x", "custom": {"a": [1, 2.5, None]}}
        headers = {"x-custom": "1", "traceparent": "00-abc-def-01"}
        status, answer = await replica.json("POST", f"{path}?v=1", json=sent, headers=headers)
        assert (status, answer) == (200, completion("engine-a"))
        call = engine.calls[0]
        assert call.path == f"{path}?v=1"
        assert {name: value for name, value in call.body.items() if name != "vllm_xargs"} == sent
        assert (call.headers["x-custom"], call.headers["traceparent"]) == ("1", "00-abc-def-01")


async def test_an_answer_passes_byte_for_byte_with_its_headers() -> None:
    content = b'{ "choices": [ ], "odd" : 1.0 }\n'

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        return web.Response(body=content, headers={"content-type": "application/json", "x-engine-said": "hi"})

    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        response, body = await replica.chat()
        assert body == content
        assert response.headers["x-engine-said"] == "hi"
        assert int(response.headers["content-length"]) == len(content)


async def test_a_stream_passes_as_it_comes_and_byte_for_byte() -> None:
    go_on = asyncio.Event()
    first, rest = b'data: {"ha', b'lf": 1}\n\n' + DONE

    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        response = await start_stream(request)
        await response.write(first)
        await go_on.wait()
        await response.write(rest)
        return response

    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = script
        async with replica.http.post("/v1/chat/completions", json=replica.call(stream=True)) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            # The engine goes on only when its first bytes have arrived at the client.
            assert await response.content.readany() == first
            go_on.set()
            assert await response.read() == rest


async def test_receipts_name_program_engine_and_route() -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        first, body = await replica.chat("s1")
        second, _ = await replica.chat("s1")
        engine = first.headers["x-autellix-engine"]
        assert (first.headers["x-autellix-route"], second.headers["x-autellix-route"]) == ("new", "pinned")
        assert second.headers["x-autellix-engine"] == engine
        assert json.loads(body)["choices"][0]["message"]["content"] == {a.url: a, b.url: b}["http://" + engine].name
        assert len(first.headers["x-autellix-program"]) == 40
        assert first.headers["x-autellix-program"] == second.headers["x-autellix-program"]
        assert first.headers["x-request-id"] != second.headers["x-request-id"]


@pytest.mark.parametrize(("given", "kept"), [("mine-1", True), ("x" * 129, False), ("bad id", False)])
async def test_a_harmless_request_id_is_kept_up_to_the_engine(given: str, kept: bool) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        headers = {"x-request-id": given}
        async with replica.http.post("/v1/chat/completions", json=replica.call(), headers=headers) as response:
            assert response.headers.getall("x-request-id") == [engine.calls[0].headers["x-request-id"]]
            assert (response.headers["x-request-id"] == given) is kept


async def test_each_call_brings_the_service_of_those_before_it() -> None:
    async with fake_engine() as engine, running_controller(engine, replica="replica-1") as replica:
        await replica.chat("s1")
        _, session = await replica.json("GET", "/v1/sessions/s1")
        await eventually(lambda: engine.cursors != [], "the record stream is followed")

        async def charged() -> bool:
            return bool((await replica.json("GET", "/v1/sessions/s1"))[1]["calls"] == 1)

        async with asyncio.timeout(60):
            while not await charged():
                await asyncio.sleep(0.01)
        await replica.chat("s1")
        await replica.chat()
        first, second, alone = (call.xargs for call in engine.calls)
        assert first["autellix_program"].startswith(session["program"])
        assert first["autellix_program"] == second["autellix_program"]
        assert (first["autellix_service_ms"], second["autellix_service_ms"]) == (0, 100)
        assert (second["autellix_path_ms"], second["autellix_wait_ms"]) == (100, 1)
        assert first["autellix_replica"] == "replica-1"
        assert len({call["autellix_call"] for call in (first, second, alone)}) == 3
        assert alone["autellix_program"] == alone["autellix_call"]
        assert alone["autellix_service_ms"] == 0


async def test_an_engine_is_told_the_thread_of_a_call() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        for headers in (
            {"x-autellix-session": "s1", "x-autellix-thread": "branch-2"},
            {"x-autellix-thread": "lone"},
            {},
        ):
            async with replica.http.post("/v1/chat/completions", json=replica.call(), headers=headers) as response:
                assert response.status == 200
        assert [call.xargs["autellix_thread"] for call in engine.calls] == ["branch-2", "lone", ""]


async def test_a_stock_engine_gets_no_context_and_its_calls_are_charged_by_time() -> None:
    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return web.json_response(completion())

    async with fake_engine(with_records=False) as engine, running_controller(engine) as replica:
        engine.script = script
        for _ in range(2):
            await replica.chat("s1")
        _, session = await replica.json("GET", "/v1/sessions/s1")
        assert session["calls"] == 2
        assert 100 <= session["service_ms"] < 60_000
        assert session["path_ms"] == session["service_ms"]
        assert "vllm_xargs" not in engine.calls[0].body


@pytest.mark.parametrize("keeps_records", [True, False])
async def test_a_call_is_charged_once_though_its_engine_is_replaced_by_one_of_another_kind(keeps_records: bool) -> None:
    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        found = replica.controller.fleet.get(engine.url.removeprefix("http://"))
        assert found is not None
        found.scheduling = Scheduling(has_records=not keeps_records)
        return web.json_response(completion())

    settings: dict[str, Any] = {"probe_seconds": 60}
    async with fake_engine(with_records=keeps_records) as engine, running_controller(engine, **settings) as replica:
        engine.script = script
        await replica.chat("s1")
        estimated = await replica.metric("autellix_controller_estimated_calls_total")
        assert estimated == (0 if keeps_records else 1)


async def test_the_engine_key_is_used_and_the_clients_key_stays_here() -> None:
    async with (
        fake_engine(key="engine-secret") as engine,
        running_controller(engine, engine_key="engine-secret", headers={"authorization": "Bearer mine"}) as replica,
    ):
        response, _ = await replica.chat()
        assert response.status == 200
        assert engine.calls[0].headers["authorization"] == "Bearer engine-secret"


async def test_calls_without_session_leave_nothing_in_the_table() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        response, _ = await replica.chat()
        assert response.headers["x-autellix-route"] == "only"
        assert await replica.metric("autellix_controller_programs") == 0
        assert (await replica.json("GET", "/v1/sessions"))[1]["data"] == []


async def test_many_first_calls_at_once_make_one_program_on_one_engine() -> None:
    async with (
        fake_engine("engine-a") as a,
        fake_engine("engine-b") as b,
        running_controller(a, b, spill_calls=1000) as replica,
    ):
        answers = await asyncio.gather(*(replica.chat("s1") for _ in range(200)))
        assert {response.status for response, _ in answers} == {200}
        assert len({response.headers["x-autellix-engine"] for response, _ in answers}) == 1
        assert await replica.metric("autellix_controller_pin_moves_total") == 1
        assert await replica.metric("autellix_controller_programs") == 1


async def test_a_client_error_of_the_engine_passes_in_openai_shape() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        shaped = {"error": {"message": "max_tokens", "type": "BadRequestError", "param": "max_tokens", "code": 400}}
        engine.script = raw(json.dumps(shaped).encode(), code=400)
        response, body = await replica.chat()
        assert (response.status, json.loads(body)) == (400, shaped)
        engine.script = raw(b"<html>no</html>", "text/html", code=422)
        response, body = await replica.chat()
        assert response.status == 422
        assert json.loads(body)["error"]["message"] == "The engine refused the call (422): <html>no</html>"
        engine.script = raw(b'{"error":{}}', code=429)
        response, body = await replica.chat()
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert json.loads(body)["error"]["message"] == 'The engine refused the call (429): {"error":{}}'


async def test_a_streamed_call_without_text_still_ends_well() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = pieces(event(finish_reason="stop") + DONE)
        response, body = await replica.chat(stream=True)
        assert (response.status, body) == (200, event(finish_reason="stop") + DONE)


async def test_a_receipt_says_the_service_that_was_brought_along_and_what_level_that_means() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.service_ms = 1500.0
        first, _ = await replica.chat("s1")

        async def charged() -> bool:
            return bool((await replica.json("GET", "/v1/sessions/s1"))[1]["calls"])

        async with asyncio.timeout(60):
            while not await charged():
                await asyncio.sleep(0.01)
        second, _ = await replica.chat("s1", stream=True)
        names = ("x-autellix-service-ms", "x-autellix-level", "x-autellix-accounting")
        assert [first.headers[name] for name in names] == ["0.000", "0", "records"]
        assert [second.headers[name] for name in names] == ["1500.000", "1", "records"]


async def test_a_receipt_says_when_a_call_is_charged_by_an_estimate() -> None:
    async with fake_engine(with_records=False) as engine, running_controller(engine) as replica:
        response, _ = await replica.chat("s1")
        assert response.headers["x-autellix-accounting"] == "estimated"
        assert "x-autellix-level" not in response.headers


async def test_a_retry_leaves_one_receipt() -> None:
    async with fake_engine("engine-a") as a, fake_engine("engine-b") as b, running_controller(a, b) as replica:
        a.script = status(500)
        for n in range(4):
            response, _ = await replica.chat(f"s{n}")
            for name in ("engine", "route", "program", "service-ms"):
                assert len(response.headers.getall(f"x-autellix-{name}")) == 1


async def test_prefix_caches_of_tenants_are_kept_apart_if_asked_for(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nalice:second-of-alice\nbob:key-of-bob\n")

    async with (
        fake_engine() as engine,
        running_controller(engine, api_keys_file=keys, isolate_prefix_cache=True) as replica,
    ):
        calls: list[tuple[str, str | None]] = [("key-of-alice", None), ("second-of-alice", None), ("key-of-bob", None)]
        calls += [("key-of-alice", "mine"), ("key-of-bob", "mine")]
        for key, salt in calls:
            body = replica.call() if salt is None else replica.call(cache_salt=salt)
            headers = {"authorization": f"Bearer {key}"}
            assert (await replica.json("POST", "/v1/chat/completions", json=body, headers=headers))[0] == 200
        salts = [call.body["cache_salt"] for call in engine.calls]
        assert salts[0] == salts[1]
        assert len(set(salts)) == 4, "another tenant's cache is out of reach, with every salt"
        assert not any("mine" in salt for salt in salts)


async def test_without_isolation_a_salt_is_the_clients_affair() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        await replica.chat()
        await replica.chat(cache_salt="mine")
        assert [call.body.get("cache_salt") for call in engine.calls] == [None, "mine"]


async def test_headers_that_agent_tools_send_name_the_session_in_the_order_of_the_setting() -> None:
    names = ["X-Tool-Session", "session_id"]
    async with fake_engine() as engine, running_controller(engine, session_headers=names) as replica:

        async def program(**headers: str) -> str:
            named = {name.replace("__", "-"): value for name, value in headers.items()}
            async with replica.http.post("/v1/chat/completions", json=replica.call(), headers=named) as response:
                assert response.status == 200
                return response.headers["x-autellix-program"]

        ours = await program(x__autellix__session="one")
        assert await program(x__tool__session="one") == ours
        assert await program(session_id="one") == ours
        assert await program(session_id="two", x__tool__session="one") == ours
        assert await program(x__tool__session="two", x__autellix__session="one") == ours
        status, error = await replica.json(
            "POST", "/v1/chat/completions", json=replica.call(), headers={"session_id": "a b"}
        )
        assert (status, error["error"]["param"]) == (400, "session_id")
