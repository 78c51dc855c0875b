"""Agent traffic as a user would send it: programs of dependent calls, through the plain ``openai`` client."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from autellix_wire import headers

_WORDS = "plan read search open edit compare decide write check answer"


@dataclass(frozen=True, kw_only=True)
class Program:
    """One run of an agent: ``calls`` turns of a conversation, each sent when the one before is answered."""

    name: str
    calls: int
    max_tokens: int
    prompt_words: int = 20
    start_after_seconds: float = 0.0
    streamed: bool = True
    """Long answers are better not streamed: the client takes milliseconds of CPU for each chunk, which on a small
    machine delays everything that is measured beside them."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the client saw of one call. Seconds since it was sent."""

    first_token_seconds: float
    """Of a call that is not streamed: when the whole answer was there."""
    seconds: float
    tokens: int
    text: str
    engine: str
    route: str
    """Why that engine."""


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """What became of a program."""

    program: Program
    calls: Sequence[Call] = field(default_factory=tuple)
    seconds: float

    @property
    def first_token_seconds(self) -> float:
        """Wait for the first token of its first call."""
        return self.calls[0].first_token_seconds


def prompt(name: str, words: int) -> str:
    """A text of so many words, different for every program."""
    vocabulary = _WORDS.split()
    return f"{name} " + " ".join(vocabulary[(i * 7 + len(name)) % len(vocabulary)] for i in range(words))


async def stream_call(
    client: AsyncOpenAI, model: str, messages: list[ChatCompletionMessageParam], *, max_tokens: int, session: str | None
) -> Call:
    """One streamed chat completion. Raises what the client raises, and RuntimeError if the stream brought no text."""
    sent = time.perf_counter()
    first: float | None = None
    parts: list[str] = []
    tokens = 0
    raw = await client.chat.completions.with_raw_response.create(
        model=model,
        messages=messages,
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={headers.SESSION: session} if session else {},
    )
    async for chunk in raw.parse():
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
        await asyncio.sleep(0)  # chunks that lie ready would otherwise be handled in one go, and all else wait
        for choice in chunk.choices:
            if choice.delta.content:
                first = first if first is not None else time.perf_counter() - sent
                parts.append(choice.delta.content)
    if first is None:
        raise RuntimeError(f"the stream of session {session} ended without a token")
    return Call(
        first_token_seconds=first,
        seconds=time.perf_counter() - sent,
        tokens=tokens,
        text="".join(parts),
        engine=raw.headers.get(headers.ENGINE, ""),
        route=raw.headers.get(headers.ROUTE, ""),
    )


async def plain_call(
    client: AsyncOpenAI, model: str, messages: list[ChatCompletionMessageParam], *, max_tokens: int, session: str | None
) -> Call:
    """One chat completion whose answer comes as a whole. Raises what the client raises."""
    sent = time.perf_counter()
    raw = await client.chat.completions.with_raw_response.create(
        model=model,
        messages=messages,
        max_tokens=max_tokens,
        temperature=0,
        extra_headers={headers.SESSION: session} if session else {},
    )
    seconds = time.perf_counter() - sent
    answer = raw.parse()
    return Call(
        first_token_seconds=seconds,
        seconds=seconds,
        tokens=answer.usage.completion_tokens if answer.usage else 0,
        text=answer.choices[0].message.content or "",
        engine=raw.headers.get(headers.ENGINE, ""),
        route=raw.headers.get(headers.ROUTE, ""),
    )


async def run_program(client: AsyncOpenAI, model: str, program: Program, session_prefix: str = "") -> ProgramRun:
    """Plays one program from its first call to its last."""
    await asyncio.sleep(program.start_after_seconds)
    started = time.perf_counter()
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": prompt(program.name, program.prompt_words)}
    ]
    calls: list[Call] = []
    for turn in range(program.calls):
        send = stream_call if program.streamed else plain_call
        call = await send(client, model, messages, max_tokens=program.max_tokens, session=session_prefix + program.name)
        calls.append(call)
        messages += [
            {"role": "assistant", "content": call.text},
            {"role": "user", "content": prompt(f"{program.name} turn {turn}", 8)},
        ]
    return ProgramRun(program=program, calls=tuple(calls), seconds=time.perf_counter() - started)


async def run_programs(
    client: AsyncOpenAI, model: str, programs: Sequence[Program], session_prefix: str = ""
) -> list[ProgramRun]:
    """Plays programs side by side; the first failure ends the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_program(client, model, p, session_prefix)) for p in programs]
    return [t.result() for t in tasks]
