"""Calls that run or wait at a replica, and an engine that answers them one by one."""

import asyncio

from aiohttp import web

from support.fake_engine import Call, FakeEngine, completion
from support.running_controller import Replica, eventually


class Gate:
    """A script that answers calls one by one, when told to; remembers the order in which they came."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._pass = asyncio.Semaphore(0)

    async def __call__(self, engine: FakeEngine, request: web.Request, call: Call) -> web.StreamResponse:
        self.order.append(call.body["user"])
        await self._pass.acquire()
        return web.json_response(completion())

    def open(self, calls: int = 1) -> None:
        """Lets so many calls pass."""
        for _ in range(calls):
            self._pass.release()


def queued(replica: Replica) -> int:
    """Calls in the replica's queue."""
    return replica.controller.slots.waiting


async def send(replica: Replica, user: str, session: str | None = None, key: str = "") -> int:
    """Sends a call and returns the status of its answer."""
    headers = {"x-autellix-session": session} if session else {}
    if key:
        headers["authorization"] = f"Bearer {key}"
    async with replica.http.post("/v1/chat/completions", json=replica.call(user=user), headers=headers) as response:
        await response.read()
        return response.status


async def start(replica: Replica, user: str, session: str | None = None, key: str = "") -> "asyncio.Task[int]":
    """Sends a call and returns once it runs on an engine or waits in the queue."""

    def seen() -> int:
        return queued(replica) + sum(engine.in_flight for engine in replica.controller.fleet)

    before = seen()
    task = asyncio.create_task(send(replica, user, session, key))
    await eventually(lambda: seen() == before + 1, f"{user} runs or waits")
    return task


async def everything_is_free(replica: Replica) -> None:
    """Returns when no call is left, and nothing of any. Raises AssertionError."""
    await eventually(lambda: replica.controller.gateway.running == 0, "no call is running")
    assert queued(replica) == 0
    assert replica.controller.gateway.body_bytes == 0
    assert all(engine.in_flight == 0 for engine in replica.controller.fleet)
    assert all(replica.controller.slots.running(name) == 0 for name in ("anonymous", "alice", "bob"))
