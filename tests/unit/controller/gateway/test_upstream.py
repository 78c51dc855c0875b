"""The HTTP client towards engines, against servers that do as they like."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_controller.gateway.connection import HEAD_LIMIT, HIGH_WATER, EngineConnection
from autellix_controller.gateway.upstream import Exhausted, PooledUpstream, Unreachable, UpstreamAnswer, UpstreamFailed

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n3\r\n!!!\r\n0\r\ntrailer: x\r\n\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(closing, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


@asynccontextmanager
async def upstream() -> AsyncIterator[PooledUpstream]:
    client = PooledUpstream(connect_seconds=1)
    try:
        yield client
    finally:
        client.close()
        await asyncio.sleep(0.01)  # closed connections go with the next turn of the loop


def answering(*answers_by_connection: int) -> Serve:
    """Answers so many calls on the first connection, the second and so on; the next call there is met by a close."""
    left = list(answers_by_connection)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(left.pop(0) if left else 0):
            await reader.readuntil(b"\r\n\r\nbody")
            writer.write(ANSWER)
            await writer.drain()
        if not reader.at_eof():
            await reader.read(1)

    return serve


def saying(*parts: bytes, pause: float = 0.0) -> Serve:
    """Sends the parts when a call has come, then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\nbody")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return serve


async def post(client: PooledUpstream, url: str, body: bytes = b"body") -> UpstreamAnswer:
    return await client.post(url, "/path?q=1", body, [(b"x-a", b"\xff")])


async def call(client: PooledUpstream, url: str) -> bytes:
    answer = await post(client, url)
    content = b""
    while chunk := await answer.chunk():
        content += chunk
    answer.close()
    return content


async def test_a_call_that_meets_a_pooled_connection_just_closing_is_sent_again_on_a_new_one() -> None:
    async with serving(answering(1, 1)) as url, upstream() as client:
        assert await call(client, url) == b"ok"
        assert await call(client, url) == b"ok"


async def test_a_new_connection_that_closes_without_an_answer_is_the_engines_failure() -> None:
    async with serving(answering(0)) as url, upstream() as client:
        with pytest.raises(UpstreamFailed):
            await call(client, url)


async def test_a_pooled_connection_is_followed_by_one_more_attempt_on_a_new_one_only() -> None:
    async with serving(answering(1, 0, 1)) as url, upstream() as client:
        assert await call(client, url) == b"ok"
        with pytest.raises(UpstreamFailed):
            await call(client, url)


@pytest.mark.parametrize("then", ["closes", "answers"])
async def test_a_call_is_sent_twice_at_most_though_all_pooled_connections_close_and_then_on_a_new_one(
    then: str,
) -> None:
    seen, together = 0, asyncio.Barrier(4)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await reader.readuntil(b"\r\n\r\nbody")
        await together.wait()
        writer.write(ANSWER)
        await reader.readuntil(b"\r\n\r\nbody")
        seen += 1

    async def new(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        if together.broken:
            await reader.readuntil(b"\r\n\r\nbody")
            seen += 1
            if then == "answers":
                writer.write(ANSWER)
        else:
            await serve(reader, writer)

    async with serving(new) as url, upstream() as client:
        await asyncio.gather(*(call(client, url) for _ in range(4)))
        await together.abort()
        if then == "answers":
            assert await call(client, url) == b"ok"
        else:
            with pytest.raises(UpstreamFailed):
                await call(client, url)
        assert seen == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL])
async def test_a_machine_without_room_for_a_connection_is_not_the_engines_fault(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exhausted(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    async with serving(answering(1)) as url, upstream() as client:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", exhausted)
        with pytest.raises(Exhausted):
            await call(client, url)


async def test_idle_connections_go_after_a_while_and_those_used_meanwhile_stay() -> None:
    async with serving(answering(5)) as url, upstream() as client:
        await call(client, url)
        client._sweep()
        assert len(client._idle[url]) == 1
        client._idle[url][0].idle_since -= 10
        client._sweep()
        assert not client._idle


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with serving(answering(5)) as url, upstream() as client:
        for _ in range(5):
            assert await call(client, url) == b"ok"


async def test_the_call_arrives_as_it_was_given() -> None:
    seen = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = await reader.readuntil(b"\r\n\r\nbody")
        writer.write(ANSWER)

    async with serving(serve) as url, upstream() as client:
        answer = await client.post(url + "/base/", "/path?q=1", b"body", [(b"x-a", b"\xff")])
        answer.close()
    host = url.removeprefix("http://").encode()
    assert seen == b"POST /base/path?q=1 HTTP/1.1\r\nhost: " + host + b"\r\ncontent-length: 4\r\nx-a: \xff\r\n\r\nbody"


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (CHUNKED, b"ok!!!"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ANSWER, b"ok"),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
    ],
)
async def test_every_form_of_an_answer_is_understood(sent: bytes, body: bytes) -> None:
    async with serving(saying(sent)) as url, upstream() as client:
        assert await call(client, url) == body


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * (HEAD_LIMIT + 1000),
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (HEAD_LIMIT // 4),
    ],
    ids=["no http", "short", "no last chunk", "no size", "upgrade", "long header", "many headers"],
)
async def test_an_answer_that_is_none_is_the_engines_failure(sent: bytes) -> None:
    async with serving(saying(sent)) as url, upstream() as client:
        with pytest.raises(UpstreamFailed):
            await call(client, url)


async def test_what_follows_an_answer_is_no_answer_to_the_next_call() -> None:
    for late in (ANSWER + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged", CHUNKED + b"x"):
        async with serving(saying(late, pause=0.05)) as url, upstream() as client:
            assert (await call(client, url))[:2] == b"ok"
            with pytest.raises(UpstreamFailed):  # the server closes the second connection without a word
                async with serving(answering(0)) as other:
                    await call(client, other)
            assert (await call(client, url))[:2] == b"ok"


async def test_an_answer_before_the_whole_body_was_taken_leaves_no_connection_behind() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await asyncio.sleep(10)

    async with serving(serve) as url, upstream() as client:
        answer = await post(client, url, b"x" * (32 << 20))
        assert await answer.chunk() == b"ok"
        answer.close()
        assert not any(client._idle.values())


async def test_nobody_listens() -> None:
    async with serving(answering()) as url:
        pass
    async with upstream() as client:
        with pytest.raises(Unreachable):
            await call(client, url)


async def test_a_cancelled_call_closes_its_connection() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\nbody")
        arrived.set()
        await reader.read()
        gone.set()

    async with serving(serve) as url, upstream() as client, asyncio.timeout(60):
        running = asyncio.create_task(post(client, url))
        await arrived.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await gone.wait()


async def test_a_reader_that_is_slow_stops_the_engine() -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\nbody")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            written += 1

    async with serving(serve) as url, upstream() as client:
        answer = await post(client, url)
        seen = -1
        while seen != written:
            seen = written
            await asyncio.sleep(0.1)
        assert written < 16, "socket buffers and HIGH_WATER, no more"
        size = 0
        while chunk := await answer.chunk():
            size += len(chunk)
        assert size == 64 << 20
        answer.close()


async def test_a_pump_gives_every_byte_in_order_and_may_be_paused() -> None:
    body = bytes(range(256)) * 8192

    async with (
        serving(saying(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)) as url,
        upstream() as client,
    ):
        answer = await post(client, url)
        got: list[bytes] = [await answer.chunk()]

        def sink(chunk: bytes) -> None:
            got.append(chunk)
            answer.pause()
            asyncio.get_running_loop().call_later(0.001, answer.resume)

        await answer.pump(sink)
        answer.close()
        assert b"".join(got) == body
        assert max(map(len, got)) <= 2 * HIGH_WATER


async def test_what_a_sink_raises_comes_out_of_the_pump() -> None:
    class Enough(Exception):
        pass

    def sink(chunk: bytes) -> None:
        raise Enough

    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving(saying(head, b"1\r\nx\r\n", b"1\r\ny\r\n", pause=0.02)) as url, upstream() as client:
        answer = await post(client, url)
        with pytest.raises(Enough):
            await answer.pump(sink)
        answer.close()
        assert not any(client._idle.values())


class FakeTransport(asyncio.Transport):
    """Takes what is written and nothing else."""

    def write(self, data: object) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, len(CHUNKED)), max_size=12))
def test_an_answer_may_be_cut_anywhere(places: list[int]) -> None:
    async def run() -> bytes:
        connection = EngineConnection()
        connection.connection_made(FakeTransport())
        connection.send(b"", b"")
        edges = [0, *sorted(places), len(CHUNKED)]
        for start, end in (edge for edge in pairwise(edges) if edge[0] != edge[1]):
            connection.data_received(CHUNKED[start:end])
        await connection.head()
        body = b""
        while chunk := await connection.chunk():
            body += chunk
        assert connection.reusable
        return body

    assert asyncio.run(run()) == b"ok!!!"
