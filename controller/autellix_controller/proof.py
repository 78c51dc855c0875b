"""The promise of the system, checked as a client sees it, on a cluster that serves: what ``helm test`` runs.

Long calls take their slots; then a short program of two calls comes. It has to end before any long call does, both of
its calls have to be served by one engine, and every answer has to bring its receipt.

Beside other work a fast engine may end a long call before a slow client gets to its second short one. So what came out
of order is tried again with longer calls; where calls run in order of arrival no length helps.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from autellix_wire import headers

_SHORT_CALLS: Final = 2
_SHORT_TOKENS: Final = 8
#: How much longer than planned the long calls of each round are.
_ROUNDS: Final = (1, 2, 4)
_RECEIPT: Final = (headers.PROGRAM, headers.ENGINE, headers.ROUTE, headers.REQUEST_ID)
#: Until what an engine reports of a call has reached the controller that is asked.
_ACCOUNTING_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2


class Unproven(Exception):
    """The cluster does not keep the promise, or cannot be asked; the message is for a person."""


class OutOfOrder(Unproven):
    """A long call ended before the short program did."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to send. ``run`` makes the names of its sessions its own."""

    run: str
    long_calls: int
    long_tokens: int
    """Of the first round."""
    seconds: float
    """For all of it."""


@dataclass(kw_only=True)
class Answer:
    """What a client saw of one call; ``end`` in seconds since the start of the run."""

    receipt: Mapping[str, str] = field(default_factory=dict)
    end: float = 0.0


async def prove(endpoint: str, key: str | None, plan: Plan) -> list[str]:
    """Sends the calls to ``endpoint``, the URL up to ``/v1``; gives what was found, a line each. Raises Unproven."""
    authorization = {"authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=plan.seconds)
    try:
        async with asyncio.timeout(plan.seconds), aiohttp.ClientSession(headers=authorization, timeout=timeout) as http:
            return await _play(http, endpoint.rstrip("/"), plan)
    except TimeoutError:
        raise Unproven(f"not within {plan.seconds:g} s") from None
    except aiohttp.ClientError as error:
        raise Unproven(f"{endpoint}: {error}") from error


def judge(short: Sequence[Answer], long: Sequence[Answer], session: Mapping[str, Any]) -> list[str]:
    """What the answers show, a line each. ``session`` is the short program's. Raises Unproven."""
    for answer in (*short, *long):
        missing = [name for name in _RECEIPT if not answer.receipt.get(name)]
        if missing:
            raise Unproven(f"an answer came without its receipt: {', '.join(missing)} is missing")
    short_end, long_end = short[-1].end, min(answer.end for answer in long)
    if short_end >= long_end:
        raise OutOfOrder(
            f"the short program ended after {short_end:.2f} s, a long call before it after {long_end:.2f} s"
        )
    engines = {answer.receipt[headers.ENGINE] for answer in short}
    if len(engines) > 1 or session["engine"] not in engines:
        raise Unproven(f"the short program was on {', '.join(sorted(engines))}, and is pinned to {session['engine']}")
    if float(session["service_ms"]) <= 0:
        raise Unproven("the short program was charged nothing")
    return [
        f"the short program ended first: after {short_end:.2f} s; {len(long)} long calls, sent before, "
        f"from {long_end:.2f} s on",
        f"its {len(short)} calls kept their pin: {session['engine']}",
        f"every answer brought its receipt; the program was charged {float(session['service_ms']):.0f} ms",
    ]


async def _play(http: aiohttp.ClientSession, endpoint: str, plan: Plan) -> list[str]:
    failed: OutOfOrder | None = None
    for times in _ROUNDS:
        run = f"{plan.run}-{times}"
        try:
            return await _Round(http, endpoint, run, plan.long_calls, plan.long_tokens * times).play()
        except OutOfOrder as error:
            failed = error
        except Unproven as error:
            # As calls that are longer than the model allows: the order is what is wrong.
            raise failed or error from error
    assert failed is not None
    raise failed


class _Round:
    def __init__(self, http: aiohttp.ClientSession, endpoint: str, run: str, long_calls: int, long_tokens: int) -> None:
        self._http, self._endpoint, self._run = http, endpoint, run
        self._long_calls, self._long_tokens = long_calls, long_tokens
        self._started = time.monotonic()

    async def play(self) -> list[str]:
        models = await self._json("GET", "/models")
        if not models["data"]:
            raise Unproven("no engine serves a model")
        model = models["data"][0]["id"]
        names = [f"{self._run}-long-{number}" for number in range(self._long_calls)]
        short = f"{self._run}-short"
        running = [asyncio.Event() for _ in names]
        try:
            async with asyncio.TaskGroup() as group:
                long = [
                    group.create_task(self._call(model, name, self._long_tokens, event))
                    for name, event in zip(names, running, strict=True)
                ]
                for event in running:
                    await event.wait()
                answers = [await self._call(model, short, _SHORT_TOKENS, asyncio.Event()) for _ in range(_SHORT_CALLS)]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        session = await self._accounted(short)
        for name in (*names, short):
            await self._json("DELETE", f"/sessions/{name}")
        return judge(answers, [task.result() for task in long], session)

    async def _call(self, model: str, session: str, tokens: int, running: asyncio.Event) -> Answer:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"{session}: tell a long story"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        answer = Answer()
        async with self._http.post(
            f"{self._endpoint}/chat/completions", json=body, headers={headers.SESSION: session}
        ) as response:
            await _refuse_errors(response)
            answer.receipt = {name: response.headers.get(name, "") for name in _RECEIPT}
            async for line in response.content:
                event = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and event != b"[DONE]":
                    _look_at(json.loads(event), running)
        if not running.is_set():
            raise Unproven(f"the answer to {session} ended without a token")
        answer.end = time.monotonic() - self._started
        return answer

    async def _accounted(self, session: str) -> Mapping[str, Any]:
        deadline = time.monotonic() + _ACCOUNTING_SECONDS
        while True:
            shown = await self._json("GET", f"/sessions/{session}")
            if shown["calls"] >= _SHORT_CALLS:
                return shown
            if time.monotonic() > deadline:
                raise Unproven(f"{shown['calls']} of {_SHORT_CALLS} calls were accounted for")
            await asyncio.sleep(_POLL_SECONDS)

    async def _json(self, method: str, path: str) -> dict[str, Any]:
        async with self._http.request(method, self._endpoint + path) as response:
            await _refuse_errors(response)
            content: dict[str, Any] = await response.json()
            return content


def _look_at(event: Mapping[str, Any], running: asyncio.Event) -> None:
    if "error" in event:
        raise Unproven(f"a stream broke: {event['error'].get('message')}")
    if any(choice["delta"].get("content") for choice in event.get("choices", ())):
        running.set()


async def _refuse_errors(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        raise Unproven(f"{response.method} {response.url.path} was answered {response.status}: {await response.text()}")
