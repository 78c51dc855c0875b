"""KV swapping in a real server, whose scheduler and device are processes of their own."""

from collections.abc import Iterator

import httpx
import pytest

from autellix_wire.context import XARGS_FIELD
from autellix_wire.records import PROGRAMS_PATH
from support.engine_calls import http_client, new_context, records
from support.engine_server import MODEL_NAME, EngineServer
from support.prometheus import scrape, series, total
from support.swap_engine import prompt

pytestmark = pytest.mark.heavy

LENGTH = 1_000
"""Tokens; the GPU's 160 blocks of 32 hold five such contexts."""


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineServer]:
    """One of its own: with few blocks and a pool in host memory."""
    scheduling = {"policy": "plas", "queue_bounds_ms": [100, 1000], "min_run_ms": 50}
    args = ["--max-num-seqs", "2", "--block-size", "32", "--num-gpu-blocks-override", "160"]
    with EngineServer(scheduling=scheduling, args=[*args, "--swap", '{"size": "64Mi"}'], key="a-key") as server:
        yield server


async def test_programs_come_back_to_what_the_host_kept_until_they_end(engine: EngineServer) -> None:
    programs = [new_context().program for _ in range(8)]
    found: dict[str, int] = {}
    async with records(engine) as stream, http_client(engine) as client:
        for visit in range(2):
            for name in programs:
                context = new_context(name)
                body = {"model": MODEL_NAME, "prompt": prompt(name, LENGTH), "max_tokens": 1 + visit}
                answer = await client.post("/v1/completions", json=body | {XARGS_FIELD: context.to_xargs()})
                assert answer.status_code == 200, answer.text
                record = await stream.read_record(context)
                found[name] = record.cached_tokens
                assert record.host_tokens > 0 or visit == 0
        assert min(found.values()) > 0.95 * LENGTH

        page = scrape(engine.url + "/metrics", engine.key)
        assert total(page, "autellix_engine_swap_context_tokens_total", 'found="host"') > 0
        assert total(page, "autellix_engine_swap_transfers_total", 'direction="load"') > 0
        assert total(page, "vllm:kv_offload_load_bytes_total") > 0
        assert total(page, "vllm:kv_offload_store_bytes_total") > 0
        before = total(page, "autellix_engine_swap_freed_blocks_total")
        await end(client, programs)
        await one_more_call(client)
    freed = total(scrape(engine.url + "/metrics", engine.key), "autellix_engine_swap_freed_blocks_total") - before
    assert freed >= 8 * 31, "whole blocks of eight contexts"


def test_the_metrics_of_swapping_are_on_the_page(engine: EngineServer) -> None:
    page = series(scrape(engine.url + "/metrics", engine.key))
    for name in ("evicted_blocks_total", "refused_blocks_total", "failed_blocks_total", "resumed_tokens_total"):
        assert f"autellix_engine_swap_{name}" in page
    for name in ("pool_blocks", "kept_blocks"):
        assert f"autellix_engine_swap_{name}" in page


async def end(client: httpx.AsyncClient, programs: list[str]) -> None:
    for name in programs:
        (await client.delete(f"{PROGRAMS_PATH}/{name}")).raise_for_status()


async def one_more_call(client: httpx.AsyncClient) -> None:
    """One more call: the scheduler hears of ended programs before it, and reports after it."""
    body = {"model": MODEL_NAME, "prompt": prompt("last", 50), "max_tokens": 4}
    (await client.post("/v1/completions", json=body)).raise_for_status()
