"""The unmodified ``openai`` client against a controller and scripted engines."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp import web
from openai import AsyncOpenAI

from support.fake_engine import DONE, Call, FakeEngine, event, fake_engine, pieces, status
from support.running_controller import Replica, running_controller


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with fake_engine() as engine:
        yield engine


@pytest.fixture
async def replica(engine: FakeEngine) -> AsyncIterator[Replica]:
    async with running_controller(engine) as replica:
        yield replica


@pytest.fixture
async def client(replica: Replica) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=replica.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


MESSAGES: Any = [{"role": "user", "content": "hi"}]


async def test_a_streamed_agent_loop_is_one_program(client: AsyncOpenAI, replica: Replica) -> None:
    headers = {"X-Autellix-Session": "agent-1"}
    for _ in range(3):
        text = ""
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, extra_headers=headers
        )
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        assert text == "engine-a done"
    _, session = await replica.json("GET", "/v1/sessions/agent-1")
    assert session["id"] == "agent-1"


async def test_a_tool_call_loop_passes_through(client: AsyncOpenAI, engine: FakeEngine) -> None:
    async def script(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        asked = call.body["messages"][-1]["role"] == "user"
        tool: Any = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
        message: Any = {"role": "assistant", "content": None, "tool_calls": [tool]}
        if not asked:
            message = {"role": "assistant", "content": "it is " + call.body["messages"][-1]["content"]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if asked else "stop"}
        answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
        return web.json_response(answer)

    engine.script = script
    messages = list(MESSAGES)
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    answer = await client.chat.completions.create(model="tiny", messages=messages, tools=tools)
    (tool,) = answer.choices[0].message.tool_calls or []
    assert tool.type == "function"
    arguments = json.loads(tool.function.arguments)
    messages += [answer.choices[0].message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": tool.id, "content": str(arguments["a"] + arguments["b"])}]
    answer = await client.chat.completions.create(model="tiny", messages=messages, tools=tools)
    assert answer.choices[0].message.content == "it is 3"
    assert engine.calls[1].body["tools"] == tools


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["tiny"]


async def test_errors_are_those_that_the_client_knows(client: AsyncOpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="gpt-9", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    engine.script = status(400, {"error": {"message": "bad", "type": "x", "param": "n", "code": "y"}})
    with pytest.raises(openai.BadRequestError, match="bad"):
        await client.chat.completions.create(model="tiny", messages=MESSAGES)
    engine.script = status(500)
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="tiny", messages=MESSAGES)


async def test_a_broken_stream_raises_in_the_client(client: AsyncOpenAI, engine: FakeEngine) -> None:
    for script in (pieces(event("x"), then="cut"), pieces(event("x"), event(finish_reason="abort"), DONE, pause=0.1)):
        engine.script = script
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
