"""Which running calls end with their session."""

import asyncio

import pytest

from autellix_controller.errors import ApiError
from autellix_controller.gateway.cancelling import ProgramCalls
from autellix_controller.gateway.interrupt import Interruptible
from autellix_controller.table.memory import MemoryTable


async def running(calls: ProgramCalls, program: str, life_ms: int) -> None:
    """A call that runs until it is ended."""
    work = Interruptible()
    with work:
        calls.add(program, life_ms, work)
        try:
            await asyncio.Event().wait()
        finally:
            calls.discard(program, work)


async def test_only_calls_of_lives_that_were_cancelled_end() -> None:
    table = MemoryTable(replica="r", session_timeout_seconds=60, clock_ms=lambda: 1000)
    calls = ProgramCalls(table)
    lives = []
    tasks = []
    for cancel in (False, True, False):
        entry = await table.open("p", owner="o", session="s", now_ms=1000)
        lives.append(entry.created_ms)
        tasks.append(asyncio.create_task(running(calls, "p", entry.created_ms)))
        await asyncio.sleep(0)
        assert calls.end_cancelled("p") == 0
        await table.end("p", cancel=cancel)
        if cancel:
            assert calls.end_cancelled("p") == 2, "those of an earlier life, which were left running, as well"
    assert lives == sorted(set(lives))
    await table.open("p", owner="o", session="s", now_ms=1000)
    assert calls.end_cancelled("p") == 0
    for task in tasks[:2]:
        with pytest.raises(ApiError, match="The session was ended"):
            await task
    assert not tasks[2].done()
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    assert calls.end_cancelled("unknown") == 0
