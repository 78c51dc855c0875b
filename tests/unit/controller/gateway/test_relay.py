"""One attempt on one engine, with engine and client made up."""

import asyncio
from collections.abc import Callable

from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.exchange import Exchange, Message
from autellix_controller.gateway.relay import Attempt, Deadlines
from autellix_controller.gateway.upstream import Headers, UpstreamAnswer

gone: list[bool] = []


class Payload(bytes):
    """A body that says when nobody holds it any more."""

    def __del__(self) -> None:
        gone.append(True)


class Answer:
    """A whole answer that comes in one piece."""

    status = 200

    def __init__(self) -> None:
        self.headers: Headers = [(b"content-type", b"application/json")]
        self.chunks = [b"{}"]
        self.gone_before_the_body: list[bool] = []

    async def chunk(self) -> bytes:
        self.gone_before_the_body.append(bool(gone))
        return self.chunks.pop() if self.chunks else b""

    async def pump(self, sink: Callable[[bytes], None]) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Engine:
    def __init__(self) -> None:
        self.answer = Answer()

    async def post(self, url: str, target: str, body: bytes, headers: Headers) -> UpstreamAnswer:
        assert not gone
        return self.answer


async def test_what_was_sent_to_an_engine_is_not_held_while_it_answers() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    gone.clear()
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": []}
    attempt = Attempt(
        Exchange(scope, receive, send),
        ends_at=asyncio.get_running_loop().time() + 10,
        timer=DeadlineTimer(),
        deadlines=Deadlines(first_byte=10, idle=10, total=10),
        answer_limit=1000,
        needs_done=True,
    )
    engine = Engine()
    await attempt.run(engine, "http://x", Payload(b"x"), [])
    assert engine.answer.gone_before_the_body == [True, True]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
