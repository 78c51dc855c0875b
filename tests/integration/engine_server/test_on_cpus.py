"""Engines on CPUs leave the processor to others while they wait."""

import os
from pathlib import Path

import httpx
import pytest

from support.engine_calls import chat, http_client, new_context
from support.engine_server import EngineServer

pytestmark = pytest.mark.heavy


def processor_seconds(engine: EngineServer, name: str) -> float:
    """Of the engine's process of that name so far."""
    [process] = [
        folder
        for folder in Path("/proc").glob("[0-9]*")
        if in_group(folder, engine.pid) and (folder / "comm").read_text().startswith(name)
    ]
    # The fields after the name, which may hold blanks: the twelfth and thirteenth are user and system time in ticks.
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def in_group(process: Path, group: int) -> bool:
    """Whether the process, a folder of ``/proc``, is of that process group; no if it has ended."""
    try:
        return os.getpgid(int(process.name)) == group
    except ProcessLookupError:
        return False


async def test_the_core_takes_less_of_a_processor_than_the_model_that_it_waits_for(engine: EngineServer) -> None:
    # Whatever else runs on the machine, one that waits in a loop is as busy as the one that it waits for.
    names = ("VLLM::EngineCor", "VLLM::Worker")
    before = [processor_seconds(engine, name) for name in names]
    async with http_client(engine) as client:
        answer: httpx.Response = await client.post("/v1/chat/completions", json=chat(new_context(), 1000))
    assert answer.status_code == 200
    core, worker = (processor_seconds(engine, name) - was for name, was in zip(names, before, strict=True))
    assert core < 0.6 * worker, f"the core took {core:.2f} s, the worker {worker:.2f} s"
