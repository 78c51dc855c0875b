"""The unmodified ``openai`` client for Node against a controller and a scripted engine."""

from typing import Any

from aiohttp import web

from autellix_controller.table.entry import program_id
from support.fake_engine import Call, FakeEngine, answer, completion, fake_engine
from support.node import run_agent
from support.running_controller import running_controller


async def adds(engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
    """Asks for the tool, and answers with what it said."""
    last = call.body["messages"][-1]
    if call.body.get("stream") or "tools" not in call.body:
        return await answer(engine, request, call)
    if last["role"] == "tool":
        return web.json_response(completion("it is " + last["content"]))
    tool = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
    found: dict[str, Any] = completion(finish_reason="tool_calls")
    found["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [tool]}
    return web.json_response(found)


async def test_a_tool_calling_and_a_streamed_agent_loop_are_one_program() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = adds
        said = await run_agent(replica.url + "/v1", "node-agent")
        assert said == {
            "turns": 2,
            "answer": "it is 3",
            "text": "engine-a done" * 2,
            "program": program_id("anonymous", "node-agent"),
            "refused": ["NotFoundError", 404, "model_not_found"],
        }
        assert len({call.xargs["autellix_program"] for call in engine.calls}) == 1
        assert (await replica.json("GET", "/v1/sessions/node-agent"))[0] == 200
