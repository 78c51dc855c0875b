"""One attempt to serve a call on one engine, from sending it to the last byte for the client."""

import asyncio
import contextlib
import time

import msgspec

from autellix_controller.errors import ErrorCode
from autellix_controller.gateway import headers as header_rules
from autellix_controller.gateway.answers import (
    EngineFailed,
    check_complete,
    client_error,
    error_status,
    failure_of,
    failure_within,
    is_clients,
    media_type,
)
from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.exchange import ClientGone, Exchange
from autellix_controller.gateway.stream import StreamWatch
from autellix_controller.gateway.upstream import Headers, Upstream, UpstreamAnswer
from autellix_controller.gateway.usage import TokenCount


class Deadlines(msgspec.Struct, frozen=True):
    """Seconds that an attempt may take."""

    first_byte: float
    """From sending to the first byte of the answer's body."""
    idle: float
    """Between two pieces of it."""
    total: float
    """For the call in all, an earlier attempt included."""


class _Ended(Exception):
    """The engine said that it aborted the call; what follows does not matter."""


class Attempt:
    """Sends one call to one engine and passes the answer on."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        ends_at: float,
        timer: DeadlineTimer,
        deadlines: Deadlines,
        answer_limit: int,
        needs_done: bool,
        tokens: TokenCount | None = None,
    ) -> None:
        """``ends_at`` is the call's total deadline on the loop's clock; ``needs_done``: its streams end with
        ``[DONE]``, those of the Responses API with an event. ``tokens`` sees the answer if they have to be counted."""
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._ends_at, self._deadlines = ends_at, deadlines
        self._answer_limit, self._needs_done, self._tokens = answer_limit, needs_done, tokens
        self._deadline = timer.deadline(ends_at)
        self.first_byte_at: float | None = None
        """When the first byte of the answer's body came, monotonic seconds."""

    async def run(self, upstream: Upstream, url: str, body: bytes, headers: Headers) -> None:
        """Serves the call on the engine at ``url``. Raises EngineFailed, UpstreamFailed and ClientGone."""
        now = self._loop.time()
        self._deadline.at = min(self._ends_at, now + self._deadlines.first_byte)
        try:
            with self._deadline:
                answer = await upstream.post(url, self._exchange.target, body, headers)
                del body  # the engine has it, and an answer may take long
                try:
                    await self._pass_on(answer)
                finally:
                    answer.close()
        except TimeoutError:
            if self._exchange.sending:
                raise ClientGone from None
            raise self._late() from None

    def _late(self) -> EngineFailed:
        in_all = self._loop.time() >= self._ends_at
        if in_all:
            reason = f"The call did not end within {self._deadlines.total:g} s."
        elif self.first_byte_at is None:
            reason = f"The engine did not begin to answer within {self._deadlines.first_byte:g} s."
        else:
            reason = f"The engine sent nothing for {self._deadlines.idle:g} s."
        return EngineFailed(reason, code=ErrorCode.DEADLINE_EXCEEDED, blames_engine=not in_all)

    async def _chunk(self, answer: UpstreamAnswer) -> bytes:
        chunk = await answer.chunk()
        self._came(chunk)
        return chunk

    def _came(self, chunk: bytes) -> None:
        now = self._loop.time()
        if self.first_byte_at is None:
            self.first_byte_at = time.monotonic()
        if self._tokens is not None:
            self._tokens.passed(chunk)
        self._deadline.move(min(self._ends_at, now + self._deadlines.idle))

    async def _whole(self, answer: UpstreamAnswer) -> bytes:
        parts: list[bytes] = []
        size = 0
        while chunk := await self._chunk(answer):
            parts.append(chunk)
            size += len(chunk)
            if size > self._answer_limit:
                # As large as the call asked for: nothing that speaks against the engine.
                raise EngineFailed(
                    f"The engine's answer is larger than {self._answer_limit} bytes.", blames_engine=False
                )
        return b"".join(parts)

    async def _pass_on(self, answer: UpstreamAnswer) -> None:
        status, headers = answer.status, header_rules.to_client(answer.headers)
        if status != 200:
            if not is_clients(status):
                raise failure_of(status)
            await self._refuse(status, headers, await self._whole(answer))
        elif any(name == b"content-encoding" and value != b"identity" for name, value in headers):
            raise EngineFailed("The engine's answer is compressed, though that was not asked for.")
        elif (kind := media_type(headers)) == b"text/event-stream":
            await self._stream(answer, headers)
        elif kind == b"application/json":
            body = await self._whole(answer)
            check_complete(body)
            await self._exchange.answer(status, headers, body)
        else:
            raise EngineFailed("The engine's answer is neither JSON nor an event stream.", retry=True)

    async def _refuse(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Passes on what speaks of the client's request."""
        headers = [(name, value) for name, value in headers if name != b"content-type"]
        if status == 429 and not any(name == b"retry-after" for name, _ in headers):
            headers.append((b"retry-after", b"1"))
        headers.append((b"content-type", b"application/json"))
        await self._exchange.answer(status, headers, client_error(status, body))

    async def _stream(self, answer: UpstreamAnswer, headers: list[tuple[bytes, bytes]]) -> None:
        """Passes a stream on as it comes. The head waits for the first bytes: until then another engine may serve."""
        exchange, watch = self._exchange, StreamWatch(needs_done=self._needs_done)
        first = watch.passes(await self._chunk(answer))
        if watch.failed_at_once:
            await self._failed_at_once(answer, headers, watch)
            return
        if first and not watch.aborted:
            await exchange.start_stream(200, headers)
            await exchange.send(first)
            if exchange.wire is not None:
                await self._pump(answer, watch)
            else:
                await self._copy(answer, watch)
        if watch.failed:
            if watch.ended:
                await exchange.end_stream()  # the engine's own event is the last one
            raise failure_within(error_status(watch.last_data))
        if watch.aborted:
            raise EngineFailed("The engine aborted the call.", retry=True)
        if not watch.complete or not exchange.started:
            raise EngineFailed("The engine's stream ended before its end.", retry=True)
        await exchange.end_stream()

    async def _failed_at_once(
        self, answer: UpstreamAnswer, headers: list[tuple[bytes, bytes]], watch: StreamWatch
    ) -> None:
        """The first event is an error, and nothing has reached the client: the same as an answer of that status."""
        while not watch.ended and (chunk := await self._chunk(answer)):
            watch.passes(chunk)
        status = error_status(watch.last_data)
        if not is_clients(status):
            raise failure_of(status)
        await self._refuse(status, headers, watch.last_data.strip())

    async def _copy(self, answer: UpstreamAnswer, watch: StreamWatch) -> None:
        """Piece by piece, each when the client has taken the one before."""
        while not watch.ended and (chunk := await self._chunk(answer)):
            await self._exchange.send(watch.passes(chunk))

    async def _pump(self, answer: UpstreamAnswer, watch: StreamWatch) -> None:
        """The same from connection to connection, without waking a task for each piece."""
        # This runs for every token: what it needs is looked up once.
        exchange, tokens, deadline, now = self._exchange, self._tokens, self._deadline, self._loop.time
        push, passes, ends_at, idle = exchange.push, watch.passes, self._ends_at, self._deadlines.idle

        def sink(chunk: bytes) -> None:
            deadline.at = min(ends_at, now() + idle)  # later than the timer, which looks when it fires
            if tokens is not None:
                tokens.passed(chunk)
            if not push(passes(chunk)):
                answer.pause()
                exchange.when_writable(answer.resume)
            if watch.ended:
                raise _Ended

        with contextlib.suppress(_Ended):
            await answer.pump(sink)
