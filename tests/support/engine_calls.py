"""What a controller does with an engine: sends calls with a program context, follows the records."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from autellix_wire import records as wire
from autellix_wire.context import XARGS_FIELD, ProgramContext
from support.engine_server import MODEL_NAME, EngineServer

WAIT_SECONDS = 60.0
"""How long a test waits for what must come, on a machine that is busy with other things."""


def new_context(program: str | None = None, **fields: Any) -> ProgramContext:
    """A context with ids that no other call has."""
    return ProgramContext(
        program=program or f"program-{uuid.uuid4()}", call=f"call-{uuid.uuid4()}", replica="tests", **fields
    )


def chat(context: ProgramContext | None, max_tokens: int, *, stream: bool = False) -> dict[str, Any]:
    """The body of a chat completion that generates exactly ``max_tokens``."""
    body: dict[str, Any] = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": "ba be bi bo bu"}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": stream,
    }
    return body if context is None else body | {XARGS_FIELD: context.to_xargs()}


def http_client(engine: EngineServer) -> httpx.AsyncClient:
    """A client with the engine's key."""
    return httpx.AsyncClient(base_url=engine.url, headers=engine.headers, timeout=WAIT_SECONDS)


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The events of a streamed answer, up to its ``[DONE]``. Fails if it breaks off before."""
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended without [DONE]")


class Records:
    """An open record stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.seen: list[wire.Message] = []
        """Everything read so far."""
        self._lines = response.aiter_lines()

    @property
    def cursor(self) -> str:
        """Where a new stream goes on after everything read so far."""
        hello = next(message for message in self.seen if isinstance(message, wire.Hello))
        seqs = [message.seq for message in self.seen if isinstance(message, wire.CallRecord)]
        return f"{hello.incarnation}:{seqs[-1] if seqs else hello.next_seq - 1}"

    async def read(self, *, until: Callable[[wire.Message], bool]) -> wire.Message:
        """Reads on, up to the first message that fits. Fails if none comes."""
        async with asyncio.timeout(WAIT_SECONDS):
            async for line in self._lines:
                self.seen.append(wire.decode(line.encode()))
                if until(self.seen[-1]):
                    return self.seen[-1]
        raise AssertionError("the record stream ended")

    async def read_record(self, context: ProgramContext) -> wire.CallRecord:
        """Reads on, up to the record of this call."""
        record = await self.read(until=lambda it: isinstance(it, wire.CallRecord) and it.call == context.call)
        assert isinstance(record, wire.CallRecord)
        return record

    async def read_to_end(self) -> None:
        """Reads until the engine ends the stream."""
        async with asyncio.timeout(WAIT_SECONDS):
            async for line in self._lines:
                self.seen.append(wire.decode(line.encode()))


@asynccontextmanager
async def records(engine: EngineServer, after: str | None = None) -> AsyncIterator[Records]:
    """A record stream, from a cursor on."""
    params = {} if after is None else {"after": after}
    async with http_client(engine) as client, client.stream("GET", wire.RECORDS_PATH, params=params) as response:
        assert response.status_code == 200, await response.aread()
        yield Records(response)
