"""Steady agent traffic beside a change, and what the clients saw of the change while it happened.

Agents play one program after another: dependent calls with a pause for the tools between them, some streamed, some
long enough to be under way whenever something ends. Every call is kept, with its failure if it failed. A window of time
is then judged: no call may have failed, and no program may have left an engine that stayed.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import openai
from openai import AsyncOpenAI

from support.tasks import end
from support.traffic import Call, plain_call, prompt, stream_call

#: What a client raises when a call fails; RuntimeError: a stream that ended without a token.
_FAILURES = (openai.OpenAIError, httpx.HTTPError, RuntimeError)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One call as its client saw it. Times are those of ``time.monotonic``."""

    program: str
    started: float
    ended: float
    engine: str = ""
    """The engine that served it; of a call that failed: unknown."""
    route: str = ""
    failure: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started


@dataclass(frozen=True, kw_only=True)
class Move:
    """A program whose next call was served by another engine than the one before."""

    program: str
    left: str
    to: str
    route: str
    ended: float
    """When the first call elsewhere was answered."""


@dataclass(kw_only=True)
class Window:
    """What happened between two marks."""

    what: str
    started: float
    ended: float = float("inf")
    calls: Sequence[Sent] = field(default_factory=tuple)
    """All calls since the traffic began, up to the end of the window."""

    @property
    def inside(self) -> list[Sent]:
        """The calls that ran at some time within the window."""
        return [call for call in self.calls if call.ended >= self.started and call.started <= self.ended]

    @property
    def failures(self) -> list[Sent]:
        """Those of them that failed."""
        return [call for call in self.inside if call.failure]

    def moves(self, *, of_programs_before: bool = False) -> list[Move]:
        """Programs that changed their engine within the window; ``of_programs_before``: only those older than it."""
        return [
            Move(program=before.program, left=before.engine, to=after.engine, route=after.route, ended=after.ended)
            for turns in _by_program(self.calls)
            if not of_programs_before or turns[0].started < self.started
            for before, after in itertools.pairwise(turn for turn in turns if not turn.failure)
            if before.engine != after.engine and after.ended >= self.started
        ]

    def needless_moves(
        self, served_until: Mapping[str, float] | None = None, *, of_programs_before: bool = False
    ) -> list[Move]:
        """Moves away from engines that still served then. ``served_until``: of those that left, until when they did."""
        left = served_until or {}
        return [
            move
            for move in self.moves(of_programs_before=of_programs_before)
            if move.ended < left.get(move.left, float("inf"))
        ]

    def __str__(self) -> str:
        seen = f"{self.what}: {len(self.inside)} calls in {self.ended - self.started:.0f} s"
        if self.inside:
            slowest = max(self.inside, key=lambda call: call.seconds)
            seen += f", the slowest took {slowest.seconds:.1f} s (sent at {slowest.started - self.started:.1f} s)"
        return f"{seen}, {len(self.failures)} failed, {len(self.moves())} programs moved"


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What agents do."""

    agents: int = 3
    turns: int = 5
    """Calls of a program."""
    thinking_seconds: float = 0.3
    """Between an answer and the next call."""
    max_tokens: Sequence[int] = (8, 8, 150)
    """Of the turns of a program, over and over."""


class SteadyTraffic:
    """Agents at work for as long as the context lasts."""

    def __init__(self, client: AsyncOpenAI, model: str, habits: Habits) -> None:
        self._client, self._model, self._habits = client, model, habits
        self._sent: list[Sent] = []
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SteadyTraffic"]:
        """Starts the agents; ends when each of them has had an answer, and at the end of the context ends them."""
        agents = [asyncio.create_task(self._agent(number)) for number in range(self._habits.agents)]
        try:
            await self.more(2 * self._habits.agents)
            yield self
        finally:
            await end(agents)

    @asynccontextmanager
    async def window(self, what: str) -> AsyncIterator[Window]:
        """Marks the beginning and the end of a change. The end is when every agent has had an answer after it."""
        window = Window(what=what, started=time.monotonic())
        yield window
        await self.more(2 * self._habits.agents)
        window.ended = time.monotonic()
        window.calls = tuple(self._sent)

    async def more(self, calls: int, *, seconds: float = 120) -> None:
        """Waits for so many more calls, failed or not. Raises TimeoutError."""
        wanted = len(self._sent) + calls
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: len(self._sent) >= wanted)

    async def _agent(self, number: int) -> None:
        for run in itertools.count():
            await self._program(f"agent-{number}-{run}", streamed=(number + run) % 2 == 0)
            await asyncio.sleep(self._habits.thinking_seconds)

    async def _program(self, name: str, *, streamed: bool) -> None:
        send = stream_call if streamed else plain_call
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": prompt(name, 20)}]
        for turn, max_tokens in zip(range(self._habits.turns), itertools.cycle(self._habits.max_tokens), strict=False):
            started = time.monotonic()
            try:
                call = await send(self._client, self._model, messages, max_tokens=max_tokens, session=name)
            except _FAILURES as failed:
                await self._keep(Sent(program=name, started=started, ended=time.monotonic(), failure=repr(failed)))
                return
            await self._keep(_served(name, started, call))
            messages += [
                {"role": "assistant", "content": call.text[:200]},
                {"role": "user", "content": prompt(f"{name} turn {turn}", 8)},
            ]
            await asyncio.sleep(self._habits.thinking_seconds)

    async def _keep(self, sent: Sent) -> None:
        async with self._news:
            self._sent.append(sent)
            self._news.notify_all()


def _served(program: str, started: float, call: Call) -> Sent:
    return Sent(program=program, started=started, ended=time.monotonic(), engine=call.engine, route=call.route)


def _by_program(calls: Sequence[Sent]) -> Iterator[list[Sent]]:
    programs: dict[str, list[Sent]] = {}
    for call in calls:
        programs.setdefault(call.program, []).append(call)
    yield from programs.values()
