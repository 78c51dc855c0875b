"""The session API through a real server."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from yarl import URL

from autellix_controller.errors import ApiError
from autellix_controller.sessions.programs import Programs
from autellix_controller.table.entry import program_id
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.memory import MemoryTable
from support.fake_engine import answer, event, fake_engine, hang, pieces
from support.running_controller import eventually, running_controller


async def test_a_session_is_opened_described_listed_and_ended() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        status, made = await replica.json("POST", "/v1/sessions")
        assert (status, made["object"], made["calls"], made["engine"]) == (200, "session", 0, None)
        assert made["id"].startswith("sess_")
        assert made["program"] == program_id("anonymous", made["id"])
        await replica.chat(made["id"])
        _, session = await replica.json("GET", f"/v1/sessions/{made['id']}")
        assert "http://" + session["engine"] == engine.url
        assert [one["id"] for one in (await replica.json("GET", "/v1/sessions"))[1]["data"]] == [made["id"]]
        status, ended = await replica.json("DELETE", f"/v1/sessions/{made['id']}")
        assert (status, ended["deleted"]) == (200, True)
        forgotten = [engine.calls[0].xargs["autellix_program"]]
        await eventually(lambda: engine.ended_programs == forgotten, "the engine forgets it")
        for method in ("GET", "DELETE"):
            status, error = await replica.json(method, f"/v1/sessions/{made['id']}")
            assert (status, error["error"]["code"]) == (404, "session_not_found")


async def test_an_engine_that_hangs_does_not_delay_the_end_of_a_session() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        engine.forgets.clear()
        await replica.chat("s1")
        async with asyncio.timeout(2):
            assert (await replica.json("DELETE", "/v1/sessions/s1"))[0] == 200
        await eventually(lambda: len(engine.ended_programs) == 1, "the engine is told all the same")


HALF_A_REQUEST = b'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"id":'


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.2) as replica:
        reader, writer = await asyncio.open_connection(replica.settings.host, URL(replica.url).port)
        writer.write(HALF_A_REQUEST)
        async with asyncio.timeout(60):
            assert b" 408 " in await reader.readline()
            answer = await reader.readuntil(b"}}")
        assert b'"code":"body_timeout"' in answer
        writer.close()


async def test_a_client_that_leaves_before_its_body_is_complete_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        _, writer = await asyncio.open_connection(replica.settings.host, URL(replica.url).port)
        writer.write(HALF_A_REQUEST)
        await writer.drain()
        await eventually(lambda: replica.connections == 1 and bool(replica.server.server_state.tasks), "it has arrived")
        writer.close()
        await eventually(lambda: not replica.server.server_state.tasks, "it has ended")
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        assert (await replica.json("GET", "/v1/sessions"))[1]["data"] == []


@pytest.mark.parametrize("name", ["mine", "a/b?c#d%20", "x" * 256, "~!"])
async def test_a_name_may_be_brought(name: str) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        status, made = await replica.json("POST", "/v1/sessions", json={"id": name})
        assert (status, made["id"]) == (200, name)
        assert (await replica.json("POST", "/v1/sessions", json={"id": name}))[1]["created"] == made["created"]
        response, _ = await replica.chat(name)
        assert response.headers["x-autellix-program"] == made["program"]
        path = URL("/v1/sessions/" + quote(name, safe=""), encoded=True)
        async with replica.http.get(path) as answer:
            assert (answer.status, (await answer.json())["id"]) == (200, name)


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":""}',
        b'{"id":"a b"}',
        b'{"id":5}',
        b'{"id":"\xc3\xa9"}',
        b'{"ident":"x"}',
        b"[]",
        b"{",
        b" " * 5000,
        b"\xff",
    ],
)
async def test_a_bad_session_is_refused(body: bytes) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        status, error = await replica.json("POST", "/v1/sessions", data=body)
        assert (status, error["error"]["code"]) == (400, "invalid_request")


async def test_null_asks_for_a_name_of_ours() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        assert (await replica.json("POST", "/v1/sessions", json={"id": None}))[1]["id"].startswith("sess_")


async def test_a_program_that_is_ended_is_measured_from_its_opening_to_its_last_answer() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        for _ in range(3):
            await replica.chat("measured")
        await replica.json("POST", "/v1/sessions", json={"id": "never-called"})
        for name in ("measured", "never-called"):
            await replica.json("DELETE", f"/v1/sessions/{name}")
        assert await replica.metric("autellix_controller_program_calls_sum") == 3
        assert await replica.metric("autellix_controller_program_seconds_count") == 1
        assert 0 <= await replica.metric("autellix_controller_program_seconds_sum") < 10


async def test_a_program_that_expires_is_measured_too() -> None:
    async with fake_engine() as engine, running_controller(engine, session_timeout_seconds=1.0) as replica:
        for _ in range(3):
            await replica.chat("left-alone")
        await asyncio.sleep(1.1)
        assert await replica.metric("autellix_controller_programs") == 0
        assert await replica.metric("autellix_controller_program_calls_sum") == 3
        assert await replica.metric("autellix_controller_program_seconds_count") == 1


async def test_pages_show_each_session_once() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        names = {f"s{n}" for n in range(25)}
        await asyncio.gather(*(replica.json("POST", "/v1/sessions", json={"id": name}) for name in names))
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 10}
        while True:
            _, page = await replica.json("GET", "/v1/sessions", params=query)
            seen += [one["id"] for one in page["data"]]
            if not page["has_more"]:
                break
            query["after"] = page["last_id"]
        assert len(seen) == 25
        assert set(seen) == names


async def test_sessions_belong_to_the_key_that_opened_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")

    def bearer(key: str) -> dict[str, Any]:
        return {"headers": {"authorization": f"Bearer {key}", "x-autellix-session": "shared"}}

    alice, bob = bearer("key-of-alice"), bearer("key-of-bob")
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys) as replica:
        call = {"json": replica.call()}
        assert (await replica.json("POST", "/v1/chat/completions", **call, **alice))[0] == 200
        for method in ("GET", "DELETE"):
            assert (await replica.json(method, "/v1/sessions/shared", **bob))[0] == 404
        assert (await replica.json("GET", "/v1/sessions", **bob))[1]["data"] == []
        assert (await replica.json("POST", "/v1/chat/completions", **call, **bob))[0] == 200
        programs = {one.xargs["autellix_program"] for one in engine.calls}
        assert len(programs) == 2
        assert (await replica.json("DELETE", "/v1/sessions/shared", **bob))[0] == 200
        assert (await replica.json("GET", "/v1/sessions/shared", **alice))[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/tiny"),
        ("POST", "/v1/sessions"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/sessions/x"),
        ("DELETE", "/v1/sessions/x"),
    ],
)
@pytest.mark.parametrize("authorization", [None, "Bearer wrong-key", "Basic key-of-alice", "Bearer", ""])
async def test_without_a_right_key_nothing_is_served(
    tmp_path: Path, method: str, path: str, authorization: str | None
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\n")
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys) as replica:
        headers = {} if authorization is None else {"authorization": authorization}
        status, error = await replica.json(method, path, headers=headers)
        assert (status, error["error"]["code"]) == (401, "invalid_api_key")
        assert "wrong-key" not in json.dumps(error)
        assert engine.calls == []


async def test_probes_need_no_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\n")
    async with fake_engine() as engine, running_controller(engine, api_keys_file=keys) as replica:
        assert await replica.json("GET", "/healthz") == (200, {"status": "ok"})
        table = {"loaded": True, "connected": True, "cause": ""}
        expected = {"ready": True, "reasons": [], "degraded": [], "table": table}
        assert await replica.json("GET", "/readyz") == (200, expected)
        assert await replica.metric("autellix_controller_table_connected") == 1


async def test_a_replica_that_has_not_loaded_its_table_is_not_ready_and_serves_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        table = f"etcd://127.0.0.1:{silent.getsockname()[1]}"
        async with fake_engine() as engine, running_controller(engine, ready=False, table=table) as replica:
            await eventually(lambda: replica.controller.fleet.known, "the engines are known")
            status, state = await replica.json("GET", "/readyz")
            assert (status, state["ready"], state["degraded"]) == (503, False, [])
            (reason,) = state["reasons"]
            assert reason.startswith("the process table is not loaded yet: ")
            assert (state["table"]["loaded"], state["table"]["connected"]) == (False, False)
            assert await replica.metric("autellix_controller_table_loaded") == 0
            assert (await replica.chat())[0].status == 200


async def test_a_running_call_keeps_its_session_alive_until_it_has_ended() -> None:
    async with fake_engine() as engine, running_controller(engine, session_timeout_seconds=1.0) as replica:
        await replica.json("POST", "/v1/sessions", json={"id": "idle"})
        engine.script = hang
        task = asyncio.create_task(replica.chat("busy"))
        await eventually(lambda: engine.running == 1, "the call runs")
        engine.script = answer

        async def after_the_timeout() -> list[int]:
            await asyncio.sleep(1.6)
            return [(await replica.json("GET", f"/v1/sessions/{name}"))[0] for name in ("idle", "busy")]

        assert await after_the_timeout() == [404, 200]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await eventually(lambda: engine.running == 0, "the call ended")
        assert await after_the_timeout() == [404, 404]


async def test_a_session_cannot_be_ended_while_the_store_is_away() -> None:
    class Away(MemoryTable):
        async def end(self, program: str, *, cancel: bool = False) -> bool:
            raise TableUnavailable("etcd is away for 3 s")

    def nobody(program: str) -> None:
        raise AssertionError("engines must not forget what still lives")

    programs = Programs(
        Away(replica="r", session_timeout_seconds=60, clock_ms=lambda: 1),
        now_ms=lambda: 1,
        tell_engines=nobody,
        count_end=lambda entry: None,
    )
    await programs.open("me", "s1")
    with pytest.raises(ApiError) as caught:
        await programs.end("me", "s1")
    assert (caught.value.status, caught.value.retry_after_seconds) == (503, 2)


async def test_ending_a_session_leaves_its_calls_running_or_cancels_them_if_asked_to() -> None:
    async with fake_engine() as engine, running_controller(engine, engine_calls=3) as replica:
        engine.script = hang
        whole = asyncio.create_task(replica.chat("s1"))
        await eventually(lambda: engine.running == 1, "a call runs")
        engine.script = pieces(event("x"), then="hang")
        streamed = asyncio.create_task(replica.chat("s1", stream=True))
        other = asyncio.create_task(replica.chat("other", stream=True))
        await eventually(lambda: engine.running == 3, "three run")
        waiting = asyncio.create_task(replica.chat("s1"))
        await eventually(lambda: replica.controller.slots.waiting == 1, "one waits")
        _, ended = await replica.json("DELETE", "/v1/sessions/s1")
        assert (ended["cancelled_calls"], engine.running) == (0, 3)
        await replica.json("POST", "/v1/sessions", json={"id": "s1"})
        _, ended = await replica.json("DELETE", "/v1/sessions/s1?cancel_calls=true")
        assert ended["cancelled_calls"] == 3
        for task in (whole, waiting):
            response, body = await task
            assert (response.status, json.loads(body)["error"]["code"]) == (409, "session_ended")
        response, body = await streamed
        assert response.status == 200
        assert b'"code":"session_ended"' in body
        await eventually(lambda: engine.running == 1, "the engine stopped the two, and not the other program's")
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
