"""Calls with a program context on a real engine, and the records that it reports."""

import asyncio
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from autellix_wire import records as wire
from autellix_wire.context import XARGS_FIELD
from support.engine_calls import WAIT_SECONDS, chat, events, http_client, new_context, records
from support.engine_server import MODEL_NAME, EngineServer

pytestmark = pytest.mark.heavy


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """The same call for ``/v1/completions``."""
    return {name: value for name, value in body.items() if name != "messages"} | {"prompt": "ba be bi bo bu"}


async def make_call(engine: EngineServer, body: dict[str, Any]) -> None:
    async with http_client(engine) as client:
        (await client.post("/v1/chat/completions", json=body)).raise_for_status()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_call_with_context_is_served_and_reported(engine: EngineServer, path: str, stream: bool) -> None:
    context = new_context(service_ms=50.0, path_ms=40.0, wait_ms=5.0)
    body = chat(context, max_tokens=12, stream=stream)
    async with records(engine) as stream_of_records:
        async with http_client(engine) as client:
            response = await client.post(path, json=body if "chat" in path else completion(body))
            assert response.status_code == 200, response.text
        record = await stream_of_records.read_record(context)
    assert (record.program, record.replica, record.outcome) == (context.program, "tests", "finished")
    assert record.generated_tokens == 12
    assert record.prompt_tokens > 0
    assert record.service_ms > 0
    assert record.path_ms == pytest.approx(40.0 + record.service_ms)
    assert record.program_wait_ms >= 5.0
    assert record.totals == wire.ProgramTotals(
        service_ms=record.service_ms, calls=1, prompt_tokens=record.prompt_tokens, generated_tokens=12
    )


async def test_every_choice_of_every_prompt_is_reported_under_its_call(engine: EngineServer) -> None:
    context = new_context(thread="branch-1")
    body = completion(chat(context, max_tokens=3)) | {"prompt": ["ba be", "bi bo bu"], "n": 2, "temperature": 1.0}
    async with records(engine) as stream:
        async with http_client(engine) as client:
            answer = (await client.post("/v1/completions", json=body)).raise_for_status().json()
        assert len(answer["choices"]) == 4
        found = [await stream.read_record(context) for _ in range(4)]
    assert {(record.call, record.thread, record.outcome) for record in found} == {
        (context.call, "branch-1", "finished")
    }
    assert found[-1].totals.calls == 4
    assert found[-1].totals.generated_tokens == sum(record.generated_tokens for record in found) == 12


async def test_a_response_and_structured_output_carry_their_program(engine: EngineServer) -> None:
    """The Responses API, and output under a grammar that has to be compiled before the call may run."""
    response, structured = new_context(), new_context()
    xargs = {XARGS_FIELD: response.to_xargs()}
    async with records(engine) as stream, http_client(engine) as client:
        body = {"model": MODEL_NAME, "input": "ba be bi", "max_output_tokens": 5, "temperature": 0} | xargs
        (await client.post("/v1/responses", json=body)).raise_for_status()
        assert (await stream.read_record(response)).generated_tokens == 5
        body = chat(structured, max_tokens=20) | {"structured_outputs": {"choice": ["ba", "be"]}}
        answer = (await client.post("/v1/chat/completions", json=body)).raise_for_status().json()
        assert answer["choices"][0]["message"]["content"] in ("ba", "be")
        assert (await stream.read_record(structured)).outcome == "finished"


async def test_a_programs_figures_grow_from_call_to_call(engine: EngineServer) -> None:
    first = new_context()
    second = new_context(first.program)
    async with records(engine) as stream:
        for context in (first, second):
            await make_call(engine, chat(context, max_tokens=4))
        before = await stream.read_record(first)
        after = await stream.read_record(second)
    assert after.totals.calls == 2
    assert after.totals.service_ms == pytest.approx(before.service_ms + after.service_ms)
    assert after.path_ms > before.path_ms


async def test_a_call_without_context_is_a_program_of_its_own(engine: EngineServer) -> None:
    marker = new_context()
    async with records(engine) as stream:
        await make_call(engine, chat(None, max_tokens=4))
        await make_call(engine, chat(marker, max_tokens=1))
        await stream.read_record(marker)
    record = [message for message in stream.seen if isinstance(message, wire.CallRecord)][-2]
    assert (record.replica, record.totals.calls, record.generated_tokens) == ("", 1, 4)
    assert record.program


async def test_a_context_that_is_no_context_is_refused_by_vllm_naming_the_field(engine: EngineServer) -> None:
    async with http_client(engine) as client:
        response = await client.post(
            "/v1/completions", json={"model": MODEL_NAME, "prompt": "x", XARGS_FIELD: {"a": {}}}
        )
    assert response.status_code == 400
    assert XARGS_FIELD in response.text


async def test_a_stream_begins_with_hello_and_beats_while_nothing_happens(engine: EngineServer) -> None:
    async with records(engine) as stream:
        hello = await stream.read(until=lambda message: True)
        assert isinstance(hello, wire.Hello)
        assert hello.policy == "plas"
        await stream.read(until=lambda message: isinstance(message, wire.LoadReport))
        started = time.monotonic()
        await stream.read(until=lambda message: isinstance(message, wire.LoadReport))
        assert time.monotonic() - started < 10 * wire.HEARTBEAT_SECONDS


async def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(engine: EngineServer) -> None:
    contexts = [new_context() for _ in range(6)]
    async with records(engine) as stream:
        for context in contexts[:2]:
            await make_call(engine, chat(context, max_tokens=2))
        await stream.read_record(contexts[1])
        cursor = stream.cursor
    for context in contexts[2:]:
        await make_call(engine, chat(context, max_tokens=2))
    async with records(engine, cursor) as one, records(engine, cursor) as another:
        for stream in (one, another):
            await stream.read_record(contexts[-1])
            assert isinstance(stream.seen[0], wire.Hello)
            assert not any(isinstance(message, wire.Gap) for message in stream.seen)
            got = [message for message in stream.seen if isinstance(message, wire.CallRecord)]
            assert [record.call for record in got] == [context.call for context in contexts[2:]]
            first = int(cursor.rpartition(":")[2]) + 1
            assert [record.seq for record in got] == list(range(first, first + 4))


async def test_a_cursor_of_a_former_start_is_told_so(engine: EngineServer) -> None:
    async with records(engine, "former:5") as stream:
        gap = await stream.read(until=lambda message: isinstance(message, wire.Gap))
    assert gap == wire.Gap(reason="restart", first=6, last=5)


async def test_a_client_that_goes_away_ends_its_call(engine: EngineServer) -> None:
    context = new_context()
    async with records(engine) as stream:
        async with http_client(engine) as client:
            body = chat(context, max_tokens=3000, stream=True)
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                arriving = events(response)
                for _ in range(5):
                    await anext(arriving)
        record = await stream.read_record(context)
    assert record.outcome == "aborted"
    assert 0 < record.generated_tokens < 1500, "the engine heard of it long before the end"


async def test_the_state_shows_calls_while_they_run_and_none_afterwards(engine: EngineServer) -> None:
    context = new_context()
    async with http_client(engine) as client, records(engine) as stream:
        async with client.stream("POST", "/v1/chat/completions", json=chat(context, 3000, stream=True)) as response:
            arriving = events(response)
            await anext(arriving)
            await stream.read(until=lambda message: isinstance(message, wire.LoadReport) and message.running == 1)
            state = (await client.get(wire.STATE_PATH)).json()
            assert state["load"]["running"] == 1
            assert state["scheduler"]
        await stream.read_record(context)
        await stream.read(until=lambda message: isinstance(message, wire.LoadReport) and message.running == 0)
        state = (await client.get(wire.STATE_PATH)).json()
        assert (state["load"]["running"], state["load"]["waiting"], state["policy"]) == (0, 0, "plas")


async def test_a_program_that_ended_is_forgotten(engine: EngineServer) -> None:
    first = new_context()
    second = new_context(first.program)
    async with http_client(engine) as client, records(engine) as stream:
        await make_call(engine, chat(first, max_tokens=8))
        await stream.read_record(first)
        for _ in range(2):
            assert (await client.delete(f"{wire.PROGRAMS_PATH}/{first.program}")).status_code == 204
        await make_call(engine, chat(new_context(), max_tokens=1))  # an idle scheduler takes it with its next step
        await make_call(engine, chat(second, max_tokens=1))
        assert (await stream.read_record(second)).totals.calls == 1


async def test_an_idle_engine_forgets_an_ended_program_at_once(engine: EngineServer) -> None:
    """Nothing is sent to it meanwhile that would make it step."""
    contexts = [new_context() for _ in range(2)]
    async with http_client(engine) as client, records(engine) as stream:

        async def programs() -> int:
            count: int = (await client.get(wire.STATE_PATH)).json()["scheduler"]["programs"]
            return count

        async def until(count: int) -> None:
            async with asyncio.timeout(WAIT_SECONDS):
                while await programs() != count:
                    await asyncio.sleep(0.02)

        await make_call(engine, chat(contexts[0], max_tokens=2))
        await stream.read_record(contexts[0])
        await stream.read(until=lambda message: isinstance(message, wire.LoadReport) and message.running == 0)
        before = await programs()
        await make_call(engine, chat(contexts[1], max_tokens=2))
        await until(before + 1)
        for context in contexts:
            (await client.delete(f"{wire.PROGRAMS_PATH}/{context.program}")).raise_for_status()
        await until(before - 1)


async def test_metrics_show_all_that_the_scheduler_does(engine: EngineServer) -> None:
    """A preemption, seen on a real ``/metrics`` page."""
    before = await scraped(engine)
    async with http_client(engine) as client, records(engine) as stream:
        served = [new_context(service_ms=5_000.0) for _ in range(2)]
        running = [asyncio.create_task(make_call(engine, chat(context, max_tokens=1_500))) for context in served]
        await stream.read(until=lambda message: isinstance(message, wire.LoadReport) and message.running == 2)
        fresh = new_context()
        await make_call(engine, chat(fresh, max_tokens=1))
        await asyncio.gather(*running)
        calls, levels = {context.call for context in (*served, fresh)}, dict[str, str]()
        while len(levels) < len(calls):  # which of the two ends first is open
            message = await stream.read(until=lambda message: isinstance(message, wire.CallRecord))
            assert isinstance(message, wire.CallRecord)
            levels |= {message.call: str(message.level)} if message.call in calls else {}
        await stream.read(until=lambda message: isinstance(message, wire.LoadReport) and message.running == 0)
        text = (await client.get("/metrics")).text
    after = await scraped(engine)

    def grown(name: str, **labels: str) -> float:
        key = (f"autellix_engine_{name}", frozenset(labels.items()))
        return after[key] - before.get(key, 0.0)

    assert grown("preemptions_total", reason="policy") >= 1
    assert grown("preemptions_total", reason="memory") == 0
    assert {levels[context.call] for context in served} == {"2"}
    for level, ended in Counter(levels.values()).items():
        assert grown("calls_total", level=level, outcome="finished") == ended
        assert grown("call_wait_seconds_count", level=level) == ended
        assert grown("call_service_seconds_count", level=level) == ended
    assert grown("promotions_total") == 0
    assert grown("bound_breaches_total") == 0
    assert grown("dropped_records_total") == 0
    assert grown("decision_seconds_count") > 100
    assert grown("decision_seconds_sum") > 0
    gauges = {name: after[f"autellix_engine_{name}", frozenset()] for name in ("worst_wait_ratio", "tokens_in_flight")}
    assert gauges == {"worst_wait_ratio": 0.0, "tokens_in_flight": 0.0}
    for level in ("0", "1", "2"):
        for name in ("running_calls", "waiting_calls"):
            assert after[f"autellix_engine_{name}", frozenset({("level", level)})] == 0
    assert "vllm:num_requests_running" in text
    labels = {label for name, found in after if name.startswith("autellix_engine_") for label, _ in found}
    assert labels == {"reason", "level", "outcome", "le"}


async def scraped(engine: EngineServer) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample on the metrics page."""
    async with http_client(engine) as client:
        text = (await client.get("/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_route_but_health_asks_for_the_key(engine: EngineServer) -> None:
    async with http_client(engine) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods]
    routes += [("get", path) for path in ("/metrics", "/docs", "/openapi.json", "/nothing", "/")]
    asked = {path for _, path in routes}
    assert asked >= {wire.RECORDS_PATH, wire.STATE_PATH, "/tokenize", "/load", "/version", "/v1/models", "/health"}
    async with httpx.AsyncClient(base_url=engine.url, timeout=30) as stranger:
        for method, path in routes:
            response = await stranger.request(method, path.replace("{", "").replace("}", ""))
            assert response.status_code == (200 if path == "/health" else 401), (method, path)
        wrong = await stranger.get("/v1/models", headers={"authorization": "Bearer wrong"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_key_is_in_no_log(engine: EngineServer) -> None:
    assert engine.key
    assert engine.key not in engine.log_text()
