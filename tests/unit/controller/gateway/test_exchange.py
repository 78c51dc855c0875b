"""The client's side of a call, against a scripted server."""

import asyncio
from typing import Any

import pytest

from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.gateway.budget import ByteBudget
from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.exchange import ClientGone, Exchange
from autellix_controller.gateway.interrupt import Interruptible

GONE = {"type": "http.disconnect"}


def exchange_of(*received: dict[str, Any]) -> tuple[Exchange, list[dict[str, Any]]]:
    messages, sent = list(received), []

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else GONE

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": []}
    return Exchange(scope, receive, send), sent


async def test_a_body_in_pieces_is_joined() -> None:
    part = {"type": "http.request", "body": b"a", "more_body": True}
    exchange, _ = exchange_of(part, part, {"type": "http.request", "body": b"b"})
    assert await exchange.body(10, 1.0, ByteBudget(10, alone=lambda: True).open("me"), DeadlineTimer()) == b"aab"


async def test_a_client_that_leaves_while_sending_is_noticed() -> None:
    exchange, _ = exchange_of({"type": "http.request", "body": b"a", "more_body": True}, GONE)
    with pytest.raises(ClientGone):
        await exchange.body(10, 1.0, ByteBudget(10, alone=lambda: True).open("me"), DeadlineTimer())


async def test_the_end_of_a_complete_answer_is_no_client_that_left() -> None:
    """Servers say "disconnect" to whoever still listens after the answer."""
    exchange, _ = exchange_of(GONE)
    with Interruptible() as work:
        await exchange.answer(200, [], b"{}")
        exchange.interrupt_when_gone(work)
        await asyncio.sleep(0)


async def test_a_client_that_leaves_before_the_answer_ends_the_work() -> None:
    exchange, _ = exchange_of(GONE)

    async def body(work: Interruptible) -> None:
        exchange.interrupt_when_gone(work)
        await asyncio.Event().wait()

    work = Interruptible()
    with pytest.raises(ClientGone), work:
        await body(work)


async def test_nothing_is_sent_after_a_complete_answer() -> None:
    exchange, sent = exchange_of()
    await exchange.answer(200, [], b"{}")
    before = len(sent)
    await exchange.fail(ApiError(ErrorCode.INTERNAL, "late"))
    assert len(sent) == before


async def test_every_answer_carries_the_receipt() -> None:
    exchange, sent = exchange_of()
    exchange.receipt = [(b"x-a", b"1")]
    await exchange.fail(ApiError(ErrorCode.CONTENDED, "full", retry_after_seconds=1))
    assert sent[0]["status"] == 429
    assert dict(sent[0]["headers"]).items() >= {b"x-a": b"1", b"retry-after": b"1"}.items()
