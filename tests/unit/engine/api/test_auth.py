"""The guard: every path but /health needs a key."""

import json
from collections.abc import Mapping

import httpx
import pytest
from fastapi import FastAPI, Response
from hypothesis import given
from hypothesis import strategies as st

from autellix_engine.api.auth import AuthSettings, EngineKeyMiddleware, Scope
from autellix_engine.api.keys import FixedKeys, InvalidAuthSettings
from autellix_engine.launcher import handover

KEY = "the-secret-key"
PATHS = ["/v1/chat/completions", "/v1/models", "/metrics", "/metricsx", "/load", "/version", "/tokenize", "/ping"]
PATHS += ["/autellix/v1/records", "/health/", "/healthz", "/HEALTH", "//health", "/health/../metrics", "/", "/docs"]


def guarded(open_metrics: bool = False) -> httpx.AsyncClient:
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
    async def anything(path: str) -> Response:
        return Response(path)

    transport = httpx.ASGITransport(EngineKeyMiddleware(app, AuthSettings(FixedKeys([KEY]), open_metrics)))
    return httpx.AsyncClient(transport=transport, base_url="http://engine")


async def status(path: str, headers: Mapping[str, str] | None = None, open_metrics: bool = False) -> int:
    async with guarded(open_metrics) as client:
        return (await client.get(path, headers=headers)).status_code


@pytest.mark.parametrize("path", PATHS)
async def test_without_the_key_nothing_answers(path: str) -> None:
    assert await status(path) == 401
    assert await status(path, {"authorization": f"Bearer {KEY}"}) == 200


async def test_health_answers_everyone() -> None:
    assert await status("/health") == 200
    assert await status("/health?x=/metrics") == 200


async def test_metrics_open_only_by_setting() -> None:
    assert await status("/metrics", open_metrics=True) == 200
    assert await status("/metricsx", open_metrics=True) == 401
    assert await status("/v1/models", open_metrics=True) == 401


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
async def test_every_method_is_guarded(method: str) -> None:
    async with guarded() as client:
        assert (await client.request(method, "/v1/models")).status_code == 401


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Bearer {KEY.upper()}"],
)
async def test_anything_but_the_key_is_refused(value: str) -> None:
    assert await status("/v1/models", {"authorization": value}) == 401


@pytest.mark.parametrize("value", [f"bearer {KEY}", f"BEARER {KEY}", f"Bearer  {KEY}"])
async def test_the_schemes_case_does_not_matter(value: str) -> None:
    assert await status("/v1/models", {"authorization": value}) == 200


async def test_two_authorization_headers_are_refused() -> None:
    async with guarded() as client:
        headers = [("authorization", f"Bearer {KEY}"), ("authorization", "Bearer other")]
        assert (await client.get("/v1/models", headers=headers)).status_code == 401


async def test_the_refusal_has_openais_shape_and_no_key_in_it() -> None:
    async with guarded() as client:
        response = await client.post("/v1/chat/completions", content=b"x" * 100_000)
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["content-type"] == "application/json"
    error = json.loads(response.content)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "invalid_api_key"
    assert KEY not in response.text


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).filter(lambda text: text != KEY))
async def test_no_other_key_opens(key: str) -> None:
    assert await status("/v1/models", {"authorization": f"Bearer {key}"}) == 401


async def test_websockets_are_closed_and_the_lifespan_passes() -> None:
    reached: list[str] = []
    sent: list[object] = []

    async def app(scope: Scope, receive: object, send: object) -> None:
        reached.append(scope["type"])

    async def receive() -> dict[str, object]:
        raise AssertionError("nothing is received")

    async def send(message: object) -> None:
        sent.append(message)

    guard = EngineKeyMiddleware(app, AuthSettings(FixedKeys([KEY])))
    await guard({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "Unauthorized"}]
    key = [(b"authorization", f"Bearer {KEY}".encode())]
    await guard({"type": "websocket", "path": "/v1/realtime", "headers": key}, receive, send)
    await guard({"type": "lifespan"}, receive, send)
    assert reached == ["websocket", "lifespan"]


def test_vllm_makes_the_guard_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handover.ENGINE_KEY, raising=False)
    monkeypatch.delenv(handover.ENGINE_KEY_FILE, raising=False)
    with pytest.raises(InvalidAuthSettings, match="AUTELLIX_ENGINE_KEY, AUTELLIX_ENGINE_KEY_FILE: neither is set"):
        EngineKeyMiddleware(FastAPI())
    monkeypatch.setenv(handover.ENGINE_KEY, KEY)
    EngineKeyMiddleware(FastAPI())


def test_settings_come_from_the_environment_and_show_no_key() -> None:
    settings = AuthSettings.from_env({handover.ENGINE_KEY: KEY, handover.OPEN_METRICS: "true"})
    assert settings.open_metrics
    assert settings.keys.accept(KEY.encode())
    assert KEY not in repr(settings)
    assert KEY not in repr(vars(settings.keys))
    with pytest.raises(InvalidAuthSettings, match="AUTELLIX_ENGINE_OPEN_METRICS: must be true or false"):
        AuthSettings.from_env({handover.ENGINE_KEY: KEY, handover.OPEN_METRICS: "yes"})
