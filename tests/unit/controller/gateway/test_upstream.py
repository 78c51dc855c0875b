"""The HTTP client towards engines, against a server that closes connections as it likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from autellix_controller.gateway.upstream import AiohttpUpstream, UpstreamFailed, new_session

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def server(*answers_by_connection: int) -> AsyncIterator[str]:
    """Answers so many calls on the first connection, the second and so on; the next call there is met by a close."""
    left = list(answers_by_connection)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(left.pop(0) if left else 0):
            await reader.readuntil(b"\r\n\r\nbody")
            writer.write(ANSWER)
            await writer.drain()
        if not reader.at_eof():
            await reader.read(1)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    finally:
        listening.close()


async def call(upstream: AiohttpUpstream, url: str) -> bytes:
    answer = await upstream.post(url, b"body", [])
    content = await answer.chunk()
    assert await answer.chunk() == b""
    answer.close()
    return content


async def test_a_call_that_meets_a_pooled_connection_just_closing_is_sent_again_on_a_new_one() -> None:
    async with server(1, 1) as url, new_session() as session:
        upstream = AiohttpUpstream(session, connect_seconds=1)
        assert await call(upstream, url) == b"ok"
        assert await call(upstream, url) == b"ok"


async def test_a_new_connection_that_closes_without_an_answer_is_the_engines_failure() -> None:
    async with server(0) as url, new_session() as session:
        upstream = AiohttpUpstream(session, connect_seconds=1)
        with pytest.raises(UpstreamFailed):
            await call(upstream, url)


async def test_a_pooled_connection_is_followed_by_one_more_attempt_on_a_new_one_only() -> None:
    async with server(1, 0, 1) as url, new_session() as session:
        upstream = AiohttpUpstream(session, connect_seconds=1)
        assert await call(upstream, url) == b"ok"
        with pytest.raises(UpstreamFailed):
            await call(upstream, url)
