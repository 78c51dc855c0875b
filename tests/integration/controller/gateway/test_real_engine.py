"""A controller in front of a real engine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from support.engine_server import EngineServer
from support.prometheus import scrape, total
from support.running_controller import Replica, eventually, running_controller

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
KEY, NEXT_KEY = "key-between-controller-and-engine", "the-next-one"
MESSAGES: Any = [{"role": "user", "content": "plan the work and work the plan"}]


@pytest.fixture(scope="module")
def engine_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the keys that the engine accepts."""
    path = tmp_path_factory.mktemp("engine") / "keys"
    path.write_text(f"{KEY}\n")
    return path


@pytest.fixture(scope="module")
def engine(engine_keys: Path) -> Iterator[EngineServer]:
    env = {"AUTELLIX_ENGINE_KEY_FILE": str(engine_keys)}
    with EngineServer(scheduling={"policy": "plas"}, args=["--max-num-seqs", "4"], env=env) as server:
        yield server


@pytest.fixture
async def replica(engine: EngineServer) -> AsyncIterator[Replica]:
    async with running_controller(engine.url, engine_key=KEY) as replica:
        yield replica


@pytest.fixture
async def client(replica: Replica) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=replica.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


async def charged(replica: Replica, session: str, calls: int) -> dict[str, Any]:
    """The session once its calls are charged."""
    async with asyncio.timeout(60):
        while True:
            status, found = await replica.json("GET", f"/v1/sessions/{session}")
            if status == 200 and found["calls"] == calls:
                return dict(found)
            await asyncio.sleep(0.05)


async def test_calls_are_served_and_charged_from_the_engines_records(client: AsyncOpenAI, replica: Replica) -> None:
    headers = {"X-Autellix-Session": "agent-1"}
    common: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "extra_headers": headers}
    answer = await client.chat.completions.create(**common, extra_body={"priority": 5})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    first = await charged(replica, "agent-1", 1)
    assert first["service_ms"] > 0
    assert (first["generated_tokens"], first["prompt_tokens"]) == (8, answer.usage.prompt_tokens)
    pieces = [chunk async for chunk in await client.chat.completions.create(**common, stream=True)]
    assert pieces[-1].choices[0].finish_reason == "length"
    second = await charged(replica, "agent-1", 2)
    assert second["service_ms"] > first["service_ms"]
    assert second["generated_tokens"] == 16


async def test_completions_responses_and_tokenize_pass(client: AsyncOpenAI, replica: Replica) -> None:
    completion = await client.completions.create(model="tiny", prompt="one two", max_tokens=4)
    assert completion.choices[0].finish_reason == "length"
    response = await client.responses.create(model="tiny", input="one two", max_output_tokens=4)
    assert response.output
    events = await client.responses.create(model="tiny", input="one", max_output_tokens=4, stream=True)
    assert [event.type async for event in events][-1] in ("response.completed", "response.incomplete")
    status, tokens = await replica.json("POST", "/tokenize", json={"model": "tiny", "prompt": "one two"})
    assert (status, tokens["count"]) == (200, len(tokens["tokens"]))
    assert replica.controller.readiness().degraded == []


async def test_the_engines_tokenizer_tells_short_calls_from_long_ones(engine: EngineServer, replica: Replica) -> None:
    """Exactly at the length that the engine charges, chat template included: a short call sets no pin."""
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 1}
    _, answer = await replica.json("POST", "/v1/chat/completions", json=body)
    length = answer["usage"]["prompt_tokens"]
    for threshold, short in ((length, True), (length - 1, False)):
        session = f"length-{threshold}"
        async with running_controller(engine.url, engine_key=KEY, locality_threshold_tokens=threshold) as other:
            headers = {"X-Autellix-Session": session}
            status, _ = await other.json("POST", "/v1/chat/completions", json=body, headers=headers)
            assert status == 200
            assert await other.metric('autellix_controller_prompt_lengths_total{by="tokenizer"}') == 1
            _, found = await other.json("GET", f"/v1/sessions/{session}")
            assert (found["engine"] is None) is short


async def generated_tokens(engine: EngineServer) -> float:
    """By all calls so far, as the engine counts."""
    return total(await asyncio.to_thread(scrape, f"{engine.url}/metrics", KEY), "vllm:generation_tokens_total")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_slot(engine: EngineServer, replica: Replica, stream: bool) -> None:
    session = f"leaver-{stream}"
    before = await generated_tokens(engine)
    call = asyncio.create_task(replica.chat(session, stream=stream, max_tokens=3500, ignore_eos=True))
    async with asyncio.timeout(60):
        while await generated_tokens(engine) == before:
            await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    found = await charged(replica, session, 1)
    assert 0 < found["generated_tokens"] < 3500


async def test_the_engine_refuses_what_does_not_come_through_the_controller(engine: EngineServer) -> None:
    async with AsyncOpenAI(base_url=engine.url + "/v1", api_key="wrong", max_retries=0) as direct:
        with pytest.raises(Exception, match="401"):
            await direct.models.list()


def mount(path: Path, *keys: str) -> None:
    """As a kubelet brings a changed Secret: the file is another one at once."""
    new = path.with_suffix(".new")
    new.write_text("".join(f"{key}\n" for key in keys))
    new.replace(path)


async def test_no_call_fails_while_the_key_is_exchanged(
    engine: EngineServer, engine_keys: Path, tmp_path: Path
) -> None:
    """Two controllers, one that learns of the new key before the engine does and one that learns of it after."""
    files = [tmp_path / name for name in ("early", "late")]
    for file in files:
        mount(file, KEY)
    async with (
        running_controller(engine.url, engine_key_file=files[0]) as early,
        running_controller(engine.url, engine_key_file=files[1]) as late,
    ):
        statuses: list[int] = []
        ended = asyncio.Event()

        async def agent(replica: Replica, stream: bool) -> None:
            while not ended.is_set():
                response, _ = await replica.chat(f"agent-{stream}", stream=stream, max_tokens=4, ignore_eos=True)
                statuses.append(response.status)

        async def some_calls() -> None:
            goal = len(statuses) + 24
            await eventually(lambda: len(statuses) >= goal, "calls go on")

        def learn(file: Path, replica: Replica, *keys: str) -> None:
            mount(file, *keys)
            assert replica.engine_keys.file is not None
            assert replica.engine_keys.file.reload_if_changed()

        async with asyncio.TaskGroup() as group:
            for replica in (early, late):
                for stream in (False, True):
                    group.create_task(agent(replica, stream))
            await some_calls()
            learn(files[0], early, NEXT_KEY, KEY)
            await some_calls()
            mount(engine_keys, NEXT_KEY, KEY)
            await some_calls()
            learn(files[1], late, NEXT_KEY, KEY)
            await some_calls()
            for file, replica in zip(files, (early, late), strict=True):
                learn(file, replica, NEXT_KEY)
            mount(engine_keys, NEXT_KEY)
            await some_calls()
            ended.set()
        assert set(statuses) == {200}
        async with AsyncOpenAI(base_url=engine.url + "/v1", api_key=KEY, max_retries=0) as direct:
            with pytest.raises(Exception, match="401"):
                await direct.models.list()
    assert not any(key in engine.log_text() for key in (KEY, NEXT_KEY))
    mount(engine_keys, KEY)


async def test_an_error_of_the_engine_reaches_the_client_as_its_own(client: AsyncOpenAI) -> None:
    with pytest.raises(Exception, match="400"):
        await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=100_000)


async def test_a_stock_engine_is_served_and_charged_by_the_time_that_calls_ran() -> None:
    """Nothing of ours in it: no records, no program context, no key."""
    async with EngineServer(stock=True) as stock, running_controller(stock.url) as replica:
        service = 0.0
        for calls, stream in enumerate((False, True, False), start=1):
            response, body = await replica.chat("agent", stream=stream, max_tokens=8, ignore_eos=True)
            assert (response.status, response.headers["X-Autellix-Accounting"]) == (200, "estimated"), body
            found = await charged(replica, "agent", calls)
            assert found["service_ms"] > service
            service = found["service_ms"]
        assert found["engine"] == response.headers["X-Autellix-Engine"]
        assert await replica.metric("autellix_controller_estimated_calls_total") == 3
        assert replica.controller.readiness().degraded == []
