"""Every request that is no call is counted by its route's template, and logged."""

import asyncio
import json
import logging
from typing import Any

import pytest
from yarl import URL

from autellix_controller.logs import JsonFormatter
from support.fake_engine import fake_engine
from support.running_controller import Replica, eventually, running_controller


def lines(caplog: pytest.LogCaptureFixture, message: str = "request") -> list[dict[str, Any]]:
    found = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [line for line in found if line["message"] == message]


async def count(replica: Replica, path: str, method: str, status: int) -> float:
    """So many requests; fails if there were none."""
    labels = f'{{method="{method}",path="{path}",status="{status}"}}'
    return await replica.metric(f"autellix_controller_requests_total{labels}")


@pytest.mark.parametrize(
    ("method", "path", "template", "counted_as", "status"),
    [
        ("GET", "/v1/models", "/v1/models", "GET", 200),
        ("GET", "/v1/models/tiny", "/v1/models/{name}", "GET", 200),
        ("GET", "/v1/models/a/b", "/v1/models/{name}", "GET", 404),
        ("POST", "/v1/sessions", "/v1/sessions", "POST", 200),
        ("GET", "/v1/sessions?limit=0", "/v1/sessions", "GET", 400),
        ("DELETE", "/v1/sessions/secret-name?cancel_calls=true", "/v1/sessions/{session}", "DELETE", 404),
        ("GET", "/openapi.json", "/openapi.json", "GET", 200),
        ("GET", "/healthz", "/healthz", "GET", 200),
        ("GET", "/readyz", "/readyz", "GET", 200),
        ("PATCH", "/v1/models", "/v1/models", "PATCH", 405),
        ("PROPFIND", "/v1/models", "/v1/models", "other", 405),
        ("GET", "/v1/what/ever", "other", "GET", 404),
    ],
)
async def test_a_request_is_counted_by_template_method_and_status(
    method: str, path: str, template: str, counted_as: str, status: int
) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        assert (await replica.json(method, path))[0] == status
        assert await count(replica, template, counted_as, status) == 1


async def test_a_request_is_logged_with_its_id_and_without_its_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with fake_engine() as engine, running_controller(engine) as replica:
        headers = {"x-request-id": "mine"}
        assert (await replica.json("DELETE", "/v1/sessions/s1?api_key=hidden", headers=headers))[0] == 404
        (line,) = lines(caplog)
        assert (line["request"], line["method"], line["path"]) == ("mine", "DELETE", "/v1/sessions/s1")
        assert line["status"] == 404
        assert 0 <= line["seconds"] < 5
        await replica.json("GET", "/" + "x" * 5000)
        assert len(lines(caplog)[1]["path"]) < 200
        assert "hidden" not in caplog.text


async def test_probes_and_scrapes_are_logged_for_those_who_look_closely(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        for level, expected in ((logging.INFO, []), (logging.DEBUG, ["/healthz", "/readyz"])):
            caplog.set_level(level)
            for path in ("/healthz", "/readyz"):
                await replica.json("GET", path)
            assert [line["path"] for line in lines(caplog)] == expected


async def test_a_defect_is_counted_though_the_answer_says_little(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:

        def defect() -> list[dict[str, Any]]:
            raise ZeroDivisionError

        monkeypatch.setattr(replica.controller.fleet, "models", defect)
        status, error = await replica.json("GET", "/v1/models")
        assert (status, error["error"]["code"]) == (500, "internal_error")
        assert await count(replica, "/v1/models", "GET", 500) == 1


async def test_what_is_no_proper_request_is_counted_and_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with fake_engine() as engine, running_controller(engine, body_deadline_seconds=0.3) as replica:
        for sent, status in (
            (b"GET / HTTP/1.1\r\nno header at all\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\n", 408),
        ):
            reader, writer = await asyncio.open_connection(replica.settings.host, URL(replica.url).port)
            writer.write(sent)
            async with asyncio.timeout(5):
                assert f" {status} ".encode() in await reader.read()
            writer.close()
            assert await count(replica, "none", "none", status) == 1
        assert [line["status"] for line in lines(caplog, "request refused")] == [400, 408]


async def test_a_client_that_leaves_is_counted_as_such() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica:
        _, writer = await asyncio.open_connection(replica.settings.host, URL(replica.url).port)
        writer.write(b'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"id":')
        await writer.drain()
        await eventually(lambda: bool(replica.server.server_state.tasks), "it has arrived")
        writer.close()
        await eventually(lambda: not replica.server.server_state.tasks, "it has ended")
        assert await count(replica, "/v1/sessions", "POST", 400) == 1
