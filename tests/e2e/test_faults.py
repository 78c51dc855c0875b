"""Parts of a serving cluster die under it. Programs keep their pins and their service."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from support.installation import Installation
from support.resources import SERVED_MODEL
from support.traffic import Program, run_program

pytestmark = pytest.mark.heavy
NAMESPACE, CLUSTER = "agents", "main"


def kill(cluster: Installation, pods: list[dict[str, Any]]) -> None:
    """Ends pods as a lost node would: no preStop, no SIGTERM."""
    names = [f"pod/{p['metadata']['name']}" for p in pods]
    cluster.target.kubectl("delete", "-n", NAMESPACE, *names, "--grace-period=0", "--force", "--wait=false")


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def session(client: AsyncOpenAI, name: str) -> dict[str, object]:
    return await client.get(f"/sessions/{name}", cast_to=dict[str, object])


async def settled(client: AsyncOpenAI, name: str, calls: int) -> dict[str, object]:
    """The session once at least so many calls are accounted for."""
    async with asyncio.timeout(90):
        while int(str((shown := await session(client, name))["calls"])) < calls:
            await asyncio.sleep(0.2)
    return shown


async def pinned(client: AsyncOpenAI, name: str, engines: set[str]) -> dict[str, object]:
    """The session once the table has its pin. A replica that could not reach etcd for a moment pins at a later call."""
    async with asyncio.timeout(120):
        while (shown := await session(client, name))["engine"] not in engines:
            await run_program(client, SERVED_MODEL, Program(name=name, calls=1, max_tokens=2))
            await asyncio.sleep(0.5)
    return shown


@pytest.mark.lab
async def test_pins_and_service_survive_the_loss_of_every_controller(
    client: AsyncOpenAI, cluster: Installation
) -> None:
    run = await run_program(client, SERVED_MODEL, Program(name="survivor", calls=2, max_tokens=8))
    await pinned(client, "survivor", {run.calls[0].engine})
    before = await settled(client, "survivor", 2)

    lost = cluster.pods(CLUSTER, NAMESPACE, "controller")
    kill(cluster, lost)

    def ready_again() -> bool:
        there = cluster.pods(CLUSTER, NAMESPACE, "controller")
        return len(there) == len(lost) and not uids(there) & uids(lost) and all(map(is_ready, there))

    cluster.wait_until(ready_again, "as many other controllers ready as were lost", seconds=300)
    cluster.wait_settled(CLUSTER, NAMESPACE)
    cluster.wait_answering(CLUSTER, NAMESPACE)

    after = await session(client, "survivor")
    assert after["engine"] == before["engine"] == run.calls[0].engine
    assert float(str(after["service_ms"])) >= float(str(before["service_ms"])) > 0
    again = await run_program(client, SERVED_MODEL, Program(name="survivor", calls=1, max_tokens=8))
    assert again.calls[0].engine == run.calls[0].engine


async def test_a_program_whose_engine_dies_goes_on_elsewhere(client: AsyncOpenAI, cluster: Installation) -> None:
    run = await run_program(client, SERVED_MODEL, Program(name="orphan", calls=1, max_tokens=8))
    lost = run.calls[0].engine
    victim = [p for p in cluster.pods(CLUSTER, NAMESPACE, "engine") if p["metadata"]["name"] == lost]
    assert len(victim) == 1

    kill(cluster, victim)
    # The node takes a moment to end the engine; until then it may answer. No call may fail meanwhile: none is
    # streamed, so each can be tried again on the other engine up to its end.
    moved_to = lost
    async with asyncio.timeout(120):
        while moved_to == lost:
            call = Program(name="orphan", calls=1, max_tokens=8, streamed=False)
            again = await run_program(client, SERVED_MODEL, call)
            moved_to = again.calls[0].engine
    await pinned(client, "orphan", {moved_to})


async def test_traffic_goes_on_while_etcd_is_away(client: AsyncOpenAI, cluster: Installation) -> None:
    run = await run_program(client, SERVED_MODEL, Program(name="patient", calls=1, max_tokens=8))
    pod = cluster.pods(CLUSTER, NAMESPACE, "etcd")
    kill(cluster, pod)
    meanwhile = await run_program(client, SERVED_MODEL, Program(name="patient", calls=2, max_tokens=8))
    assert {call.engine for call in meanwhile.calls} == {run.calls[0].engine}
    cluster.wait_settled(CLUSTER, NAMESPACE)
    await settled(client, "patient", 3)
    await pinned(client, "patient", {run.calls[0].engine})
