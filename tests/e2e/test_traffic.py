"""What an agent builder sees: the OpenAI API on the cluster's Service."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI

from autellix_wire import headers
from support.installation import Installation
from support.prometheus import total
from support.resources import SERVED_MODEL
from support.traffic import Program, prompt, run_program

pytestmark = pytest.mark.heavy
NAMESPACE, CLUSTER = "agents", "main"


def calls_on_engines(cluster: Installation) -> tuple[float, float]:
    """Calls that run or wait on the engines now, and those that were ever aborted there, by their own metrics."""
    pages = cluster.engine_metrics(CLUSTER, NAMESPACE)
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    aborted = (total(page, "autellix_engine_calls_total", 'outcome="aborted"') for page in pages)
    return sum(total(page, name) for page in pages for name in names), sum(aborted)


async def test_a_plain_completion_is_answered_with_a_receipt(client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=SERVED_MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
    )
    assert raw.parse().usage.completion_tokens == 8  # type: ignore[union-attr]
    assert raw.headers[headers.ENGINE].startswith("main-engine-")
    assert raw.headers[headers.ROUTE]
    assert raw.headers[headers.REQUEST_ID]


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [m.id async for m in client.models.list()] == [SERVED_MODEL]


async def test_the_turns_of_a_program_stay_on_its_engine(client: AsyncOpenAI) -> None:
    runs = await asyncio.gather(
        *(run_program(client, SERVED_MODEL, Program(name=f"turns-{i}", calls=3, max_tokens=100)) for i in range(4))
    )
    engines = [{call.engine for call in run.calls} for run in runs]
    assert all(len(of_program) == 1 for of_program in engines)
    assert len(set.union(*engines)) == 2, "four programs at once should spread over both engines"


async def test_a_client_that_goes_away_frees_its_slot(client: AsyncOpenAI, cluster: Installation) -> None:
    _, aborted_before = await asyncio.to_thread(calls_on_engines, cluster)
    stream = await client.chat.completions.create(
        model=SERVED_MODEL,
        messages=[{"role": "user", "content": prompt("leaver", 10)}],
        max_tokens=3500,
        stream=True,
    )
    async for _ in stream:
        break
    await stream.close()
    # That it ran shows in that it was aborted: each look takes seconds, in which it might end by itself.
    async with asyncio.timeout(120):
        while True:
            running, aborted = await asyncio.to_thread(calls_on_engines, cluster)
            if running == 0 and aborted > aborted_before:
                break


async def test_sessions_start_show_their_service_and_end(client: AsyncOpenAI) -> None:
    started = await client.post("/sessions", cast_to=dict[str, object], body={"id": "e2e-session"})
    assert started["id"] == "e2e-session"
    await run_program(client, SERVED_MODEL, Program(name="e2e-session", calls=2, max_tokens=8))
    async with asyncio.timeout(90):  # records travel engine, controller, etcd, other controller
        while True:
            shown = await client.get("/sessions/e2e-session", cast_to=dict[str, object])
            if shown["calls"] == 2:
                break
            await asyncio.sleep(0.2)
    assert float(str(shown["service_ms"])) > 0
    async with asyncio.timeout(90):  # another controller may answer
        while True:
            listed = await client.get("/sessions", cast_to=dict[str, list[dict[str, object]]])
            if "e2e-session" in [s["id"] for s in listed["data"]]:
                break
            await asyncio.sleep(0.2)
    await client.delete("/sessions/e2e-session", cast_to=dict[str, object])
    async with asyncio.timeout(90):
        while True:
            try:
                await client.get("/sessions/e2e-session", cast_to=dict[str, object])
            except openai.NotFoundError:
                break
            await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("model", "messages", "error"),
    [
        ("no-such-model", [{"role": "user", "content": "x"}], openai.NotFoundError),
        (SERVED_MODEL, "not a list", openai.BadRequestError),
    ],
)
async def test_bad_calls_get_an_openai_error(
    client: AsyncOpenAI, model: str, messages: object, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        await client.post("/chat/completions", cast_to=object, body={"model": model, "messages": messages})
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"]
