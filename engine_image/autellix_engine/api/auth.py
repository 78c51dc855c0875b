"""The guard of the engine's HTTP server: every path but ``/health`` needs a key of the engine.

vLLM's own ``--api-key`` leaves metrics, tokenisation, load and plugin routes open; this one stands before everything.
It is loaded by ``--middleware`` (see the launcher), so vLLM makes it without arguments and it reads the environment.
"""

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from autellix_engine.api.keys import EngineKeys, InvalidAuthSettings, engine_keys
from autellix_engine.launcher import handover

_HEALTH: Final = "/health"
_METRICS: Final = "/metrics"

# The types of ASGI 3, https://asgi.readthedocs.io/en/latest/specs/main.html
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class AuthSettings:
    """What the guard asks for."""

    keys: EngineKeys = field(repr=False)
    open_metrics: bool = False
    """Whether ``/metrics`` answers scrapers that have no key."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "AuthSettings":
        """Reads the settings. Raises InvalidAuthSettings."""
        keys = engine_keys(env)
        if keys is None:
            raise InvalidAuthSettings(f"{handover.ENGINE_KEY}, {handover.ENGINE_KEY_FILE}: neither is set")
        open_metrics = env.get(handover.OPEN_METRICS, "false")
        if open_metrics not in ("true", "false"):
            raise InvalidAuthSettings(f"{handover.OPEN_METRICS}: must be true or false")
        return cls(keys, open_metrics == "true")


class EngineKeyMiddleware:
    """ASGI middleware that answers 401 in OpenAI's shape unless the request carries ``Authorization: Bearer <key>``
    with one of the engine's keys."""

    def __init__(self, app: App, settings: AuthSettings | None = None) -> None:
        settings = settings or AuthSettings.from_env(os.environ)
        self._app = app
        self._keys = settings.keys
        self._open_paths = {_HEALTH, _METRICS} if settings.open_metrics else {_HEALTH}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what is allowed, answers what is not."""
        if scope["type"] == "lifespan" or scope["path"] in self._open_paths or self._has_key(scope["headers"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "Unauthorized"})
        else:
            await _send_unauthorized(send)

    def _has_key(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        found = [value for name, value in headers if name == b"authorization"]
        if len(found) != 1:
            return False
        scheme, _, key = found[0].partition(b" ")
        return scheme.lower() == b"bearer" and self._keys.accept(key.strip(b" "))


async def _send_unauthorized(send: Send) -> None:
    error = {
        "message": "This engine accepts calls only with its key: Authorization: Bearer <key>.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
