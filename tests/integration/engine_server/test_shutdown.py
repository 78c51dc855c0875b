"""How an engine ends: nothing that runs is lost."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autellix_wire import records as wire
from support.engine_calls import WAIT_SECONDS, chat, events, http_client, new_context, records
from support.engine_server import EngineServer

pytestmark = pytest.mark.heavy


async def test_after_sigterm_a_running_stream_finishes_and_its_record_comes(tmp_path: Path) -> None:
    context = new_context()
    env = {"AUTELLIX_DRAIN_SECONDS": "60", "TMPDIR": str(tmp_path)}
    async with EngineServer(key="k", env=env) as engine, records(engine) as stream, http_client(engine) as client:
        finish_reason = None
        async with client.stream("POST", "/v1/chat/completions", json=chat(context, 400, stream=True)) as response:
            received = 0
            async for event in events(response):
                finish_reason = event["choices"][0]["finish_reason"]
                received += 1
                if received == 5:
                    os.kill(engine.pid, signal.SIGTERM)
        assert finish_reason == "length"
        await stream.read_to_end()
        assert engine.wait_ended(60) == 0
    record = next(message for message in stream.seen if isinstance(message, wire.CallRecord))
    assert (record.call, record.outcome, record.generated_tokens) == (context.call, "finished", 400)
    assert not list(tmp_path.glob("autellix-engine-*"))


async def test_drain_holds_the_end_back_until_the_call_is_done(engine: EngineServer) -> None:
    context = new_context()
    command = [sys.executable, "-m", "autellix_engine", "drain", "--port", str(engine.port)]
    command += ["--initial-delay-seconds", "0", "--deadline-seconds", "60"]
    environment = os.environ | {"AUTELLIX_ENGINE_KEY": engine.key or ""}
    body = chat(context, 3000, stream=True)
    async with http_client(engine) as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
        arriving = events(response)
        await anext(arriving)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as drain:
            assert drain.stdout is not None
            while (said := await asyncio.to_thread(drain.stdout.readline)) != "drain: waiting: 1 calls run, 0 wait\n":
                assert "unknown" in said, "a busy engine may be slow to say what it does"
            for _ in range(5):
                await anext(arriving)
            assert drain.poll() is None, "drain ended before the call did"
            await response.aclose()  # the call ends with its client
            said, _ = await asyncio.to_thread(drain.communicate, timeout=WAIT_SECONDS)
    assert drain.returncode == 0
    assert said.endswith("drain: no call runs or waits\n")
