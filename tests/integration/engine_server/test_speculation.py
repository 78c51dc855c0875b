"""Tokens that are guessed ahead. An engine of its own: what guesses with leaves marks in a process."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from autellix_wire.context import ProgramContext
from support.engine_calls import chat, events, http_client, new_context, records
from support.engine_server import EngineServer
from support.prometheus import scrape, total

pytestmark = pytest.mark.heavy
KEY = "integration-engine-key"
LONG_TOKENS, BETTER_TOKENS = 1200, 60
LEVELS = {"policy": "plas", "queue_bounds_ms": [600_000, 6_000_000], "min_run_ms": 0}
GUESSES = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


def streamed(context: ProgramContext, max_tokens: int, words: str) -> dict[str, Any]:
    """A call whose continuation can be guessed."""
    body = chat(context, max_tokens, stream=True)
    body["messages"] = [{"role": "user", "content": words * 12}]
    return body


async def text(client: httpx.AsyncClient, body: dict[str, Any], begun: asyncio.Event) -> str:
    """The whole answer."""
    parts = []
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for event in events(response):
            parts.append(event["choices"][0]["delta"].get("content") or "")
            if parts[-1]:
                begun.set()
    return "".join(parts)


async def test_a_preempted_call_goes_on_as_if_nothing_had_been() -> None:
    # Float32, so that a token computed beside others, or again, is the same.
    args = ["--max-num-seqs", "1", "--dtype", "float32", "--speculative-config", json.dumps(GUESSES)]
    async with (
        EngineServer(scheduling=LEVELS, args=args, key=KEY) as engine,
        http_client(engine) as client,
        records(engine) as stream,
    ):
        served, fresh = new_context(service_ms=9e6), new_context()
        calls = {"long": ("plan read search ", LONG_TOKENS), "better": ("open edit write ", BETTER_TOKENS)}
        alone = {
            name: await text(client, streamed(new_context(), tokens, words), asyncio.Event())
            for name, (words, tokens) in calls.items()
        }
        begun = asyncio.Event()
        words, tokens = calls["long"]
        long = asyncio.create_task(text(client, streamed(served, tokens, words), begun))
        await begun.wait()
        words, tokens = calls["better"]
        better = await text(client, streamed(fresh, tokens, words), asyncio.Event())
        assert {"long": await long, "better": better} == alone
        assert (await stream.read_record(served)).preemptions == 1
        page = await asyncio.to_thread(scrape, f"{engine.url}/metrics", KEY)
        assert total(page, "vllm:spec_decode_num_accepted_tokens_total") > 0, "some guesses were right"
