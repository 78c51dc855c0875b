"""Connections of clients: what is written on them, and how long they may stay without a request."""

import asyncio
import json
from pathlib import Path

import pytest

from autellix_controller.protocol import AHEAD_LIMIT, HttpProtocol
from support.fake_engine import event, fake_engine, hang, pieces
from support.running_controller import Replica, eventually, running_controller

CHAT = "/v1/chat/completions"


async def connect(replica: Replica) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(replica.settings.host, int(replica.url.rsplit(":", 1)[1]))


def post(body: bytes, *headers: str) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/sessions", "/healthz", "/nothing"])
async def test_the_answer_to_head_is_a_head_alone(path: str) -> None:
    """A body would be read as the beginning of the next answer on the connection."""
    async with fake_engine() as engine, running_controller(engine) as replica:
        reader, writer = await connect(replica)
        head = f"HEAD {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        for sent, answers in ((head, 1), (head * 2, 2)):  # one at a time, and ahead
            writer.write(sent)
            for _ in range(answers):
                assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.1 ")
        writer.write(b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
        writer.close()
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert json.loads(body)["error"]["code"] == "route_not_found"


async def test_the_answer_to_head_is_a_head_alone_where_a_key_is_missing(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\n")
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys) as replica:
        reader, writer = await connect(replica)
        writer.write(f"HEAD {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        head, end, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
        writer.close()
        assert (head.split()[1], end, body) == (b"401", b"\r\n\r\n", b"")


@pytest.mark.parametrize("sent", [b"", b"\r\n"], ids=["nothing", "an empty line"])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.2) as replica:
        reader, writer = await connect(replica)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


@pytest.mark.parametrize("sent", [b"G", b"GET /healthz HTTP/1.1\r\nhost: x\r\n", b"GET /heal"])
async def test_half_a_head_is_not_waited_for(sent: bytes) -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.2) as replica:
        reader, writer = await connect(replica)
        writer.write(sent)
        head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["error"]["code"] == "headers_timeout"


async def test_half_a_head_after_an_answer_is_not_waited_for_however_slowly_it_goes_on() -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.3) as replica:
        reader, writer = await connect(replica)
        writer.write(post(json.dumps(replica.call()).encode()))
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b'"total_tokens": 5}}')

        async def trickle() -> None:
            for byte in b"GET /healthz HTTP/1.1\r\n" + b"x: " + b"y" * 1000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        writer.close()


async def test_the_rest_of_a_refused_body_is_not_taken_for_ever() -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.3) as replica:
        reader, writer = await connect(replica)
        writer.write(f"GET {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n".encode())
        assert b" 405 " in await reader.readline()

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        await eventually(lambda: replica.connections == 0, "the connection is closed")
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        writer.close()


async def test_half_a_head_does_not_end_the_call_before_it() -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.1) as replica:
        engine.script = pieces(*[event("x")] * 10, b"data: [DONE]\n\n", pause=0.05)
        reader, writer = await connect(replica)
        writer.write(post(json.dumps(replica.call(stream=True)).encode()) + b"GET /he")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert b"[DONE]" in answer
        assert answer.count(b"HTTP/1.1 ") == 2, "then half a head is answered as such"


async def test_a_whole_request_ends_the_time_for_its_head() -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.2) as replica:
        engine.script = pieces(event("x"), b"data: [DONE]\n\n", pause=0.3)
        reader, writer = await connect(replica)
        for _ in range(2):
            writer.write(post(json.dumps(replica.call(stream=True)).encode()))
            assert b" 200 " in await reader.readline()
            assert b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")
        await asyncio.sleep(0.5)  # an idle connection has another bound
        assert not reader.at_eof()
        writer.close()


async def test_a_client_that_sends_its_next_request_during_a_call_is_noticed_when_it_leaves() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = hang
        _, writer = await connect(replica)
        call = post(json.dumps(replica.call()).encode())
        writer.write(call)
        await eventually(lambda: engine.running == 1, "the call runs")
        writer.write(call)
        await asyncio.sleep(0.1)  # it has arrived
        writer.close()
        await eventually(lambda: engine.running == 0, "the engine stopped the call", seconds=2.0)
        assert len(engine.calls) == 1


async def test_what_a_client_sends_ahead_is_bounded() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.script = hang
        _, writer = await connect(replica)
        call = post(json.dumps(replica.call()).encode())
        writer.write(call)
        await eventually(lambda: engine.running == 1, "the call runs")
        connections = [found for found in replica.server.server_state.connections if isinstance(found, HttpProtocol)]
        (connection,) = [found for found in connections if found.cycle is not None]
        writer.write(call * (64 * AHEAD_LIMIT // len(call)))
        await eventually(lambda: connection.flow.read_paused, "it reads no more")
        held = len(connection.pipeline)
        await asyncio.sleep(0.2)
        assert len(connection.pipeline) == held < 16 * AHEAD_LIMIT // len(call)
        writer.close()
