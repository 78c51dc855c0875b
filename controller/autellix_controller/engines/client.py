"""The controller's own requests to engines, apart from clients' calls: probes, models, records, ended programs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from autellix_controller.engines.engine import LEVELS_BY, NO_SCHEDULING, Scheduling
from autellix_controller.engines.follower import StreamBroken, StreamUnsupported
from autellix_controller.engines.keys import EngineKeys
from autellix_controller.files import is_exhaustion
from autellix_wire.records import HEARTBEAT_SECONDS, PROGRAMS_PATH, RECORDS_PATH, STATE_PATH

_PROBE: Final = aiohttp.ClientTimeout(total=5.0)
#: The engine sends at least a heartbeat: after several missed ones the stream is dead.
_STREAM: Final = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=5 * HEARTBEAT_SECONDS)
#: Longest line of the record stream, largest list of models and largest dump of an engine's state, bytes.
_LINE_LIMIT: Final = 1 << 20
_MODELS_LIMIT: Final = 4 << 20
_STATE_LIMIT: Final = 1 << 20


class ProbeFailed(Exception):
    """The engine cannot serve; the message says why."""


class ProbeSlow(ProbeFailed):
    """The engine did not answer in time: busy perhaps, or gone."""


class ProbeImpossible(ProbeFailed):
    """This machine had no room for a connection: that says nothing about the engine."""


class TokenizeUnsupported(Exception):
    """The engine has no ``/tokenize``."""


class _Count(msgspec.Struct):
    count: int


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]


class _Scheduler(msgspec.Struct):
    queue_bounds_ms: tuple[float, ...] = ()


class _State(msgspec.Struct):
    policy: str = ""
    scheduler: _Scheduler = msgspec.field(default_factory=_Scheduler)


def new_session() -> aiohttp.ClientSession:
    """The pool of connections for these requests. Create it on the event loop that uses it."""
    # vLLM closes idle connections after 5 s: we close earlier, or a request would meet one that is just going.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


class EngineClient:
    """Requests to one engine."""

    def __init__(self, session: aiohttp.ClientSession, url: str, keys: EngineKeys) -> None:
        self._session, self._url, self._keys = session, url, keys

    @asynccontextmanager
    async def _ask(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends a request; where a key is refused, with the next one. Raises aiohttp.ClientError and TimeoutError."""
        given = options.pop("headers", {})
        *others, last = self._keys.mappings
        for key in others:
            async with self._session.request(method, self._url + path, headers=given | key, **options) as response:
                if response.status != HTTPStatus.UNAUTHORIZED:
                    yield response
                    return
        async with self._session.request(method, self._url + path, headers=given | last, **options) as response:
            yield response

    async def models(self) -> tuple[dict[str, Any], ...]:
        """Probes the engine: healthy, and the entries of its model list. Raises ProbeFailed.

        ``/health`` is not part of the OpenAI API: a server without it counts as healthy when it lists its models.
        """
        try:
            async with self._ask("GET", "/health", timeout=_PROBE) as response:
                if response.status >= 500:
                    raise ProbeFailed(f"/health answered {response.status}")
            async with self._ask("GET", "/v1/models", timeout=_PROBE) as response:
                if response.status in (401, 403):
                    raise ProbeFailed(f"it refuses the engine key: /v1/models answered {response.status}")
                if response.status != 200:
                    raise ProbeFailed(f"/v1/models answered {response.status}")
                body = await _limited(response, "/v1/models", _MODELS_LIMIT)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unanswered(error) from None
        try:
            return tuple(msgspec.json.decode(body, type=_Models).data)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            raise ProbeFailed("/v1/models did not answer with a list of models") from None

    async def scheduling(self) -> Scheduling | None:
        """How the engine schedules, and so whether it understands program context. Raises ProbeFailed.

        None if it answered with a server error, which says neither: an engine that is busy or stopping must not be
        taken for a stock one.
        """
        try:
            async with self._ask("GET", STATE_PATH, timeout=_PROBE) as response:
                if response.status >= 500:
                    return None
                if response.status != 200 or response.content_type != "application/json":
                    return NO_SCHEDULING
                body = await _limited(response, STATE_PATH, _STATE_LIMIT)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unanswered(error) from None
        try:
            state = msgspec.json.decode(body, type=_State)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            return Scheduling(has_records=True)  # of another version: it keeps records, and its levels are not known
        bounds = state.scheduler.queue_bounds_ms if state.policy in LEVELS_BY else ()
        return Scheduling(has_records=True, policy=state.policy, queue_bounds_ms=bounds)

    async def count_tokens(self, request: bytes) -> int | None:
        """Tokens of a request to ``/tokenize``; None if the engine does not say. Raises TokenizeUnsupported."""
        headers = {"Content-Type": "application/json"}
        try:
            async with self._ask("POST", "/tokenize", data=request, headers=headers, timeout=_PROBE) as response:
                if response.status in (404, 405, 501):
                    raise TokenizeUnsupported
                return msgspec.json.decode(await response.read(), type=_Count).count if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return None

    async def lines(self, after: str | None) -> AsyncIterator[bytes]:
        """See ``RecordSource``."""
        params = {"after": after} if after else {}
        rest = b""
        try:
            async with self._ask("GET", RECORDS_PATH, params=params, timeout=_STREAM) as response:
                if response.status in (404, 405):
                    raise StreamUnsupported
                if response.status != 200:
                    raise StreamBroken(f"answered {response.status}")
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _LINE_LIMIT:
                        raise StreamBroken(f"a line is longer than {_LINE_LIMIT} bytes")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StreamBroken(f"{type(error).__name__}: {error}"[:200]) from None

    async def end_program(self, engine_program: str) -> bool:
        """Tells the engine to forget a program; False if it could not be told (it forgets idle programs itself)."""
        try:
            path = f"{PROGRAMS_PATH}/{quote(engine_program, safe='')}"
            async with self._ask("DELETE", path, timeout=_PROBE) as response:
                return response.status < 300 or response.status == 404
        except (aiohttp.ClientError, TimeoutError):
            return False


async def _limited(response: aiohttp.ClientResponse, path: str, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise ProbeFailed(f"{path} answered with more than {limit} bytes")
    return bytes(body)


def _unanswered(error: Exception) -> ProbeFailed:
    if isinstance(error, TimeoutError):
        return ProbeSlow(f"no answer to a probe within {_PROBE.total:g} s")
    if is_exhaustion(error):
        return ProbeImpossible(f"not probed: {error}"[:200])
    return ProbeFailed(f"not reachable: {type(error).__name__}: {error}"[:200])
