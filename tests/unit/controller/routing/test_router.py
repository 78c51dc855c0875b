"""The router between decision, fleet and table."""

import asyncio

import pytest

from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.client import EngineClient, TokenizeUnsupported
from autellix_controller.engines.discovery import StaticDiscovery
from autellix_controller.engines.engine import Endpoint
from autellix_controller.engines.fleet import Fleet
from autellix_controller.engines.health import Seen
from autellix_controller.engines.tokens import TokenCounter
from autellix_controller.routing.decide import NoEngine, Rules
from autellix_controller.routing.router import Asked, Router
from autellix_controller.sessions.identity import program_of
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.memory import MemoryTable

PROGRAM = program_of("me", "s1", "call")


class Table(MemoryTable):
    """Another replica can be quicker, or the store away."""

    def __init__(self) -> None:
        super().__init__(replica="r", session_timeout_seconds=60, clock_ms=lambda: 1)
        self.quicker: str | None = None
        self.away = False
        self.attempts = 0

    async def pin(self, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.away:
            raise TableUnavailable("away")
        if self.quicker is not None:
            await super().pin(program, self.quicker, expected=expected)
        return await super().pin(program, engine, expected=expected)


class Client(EngineClient):
    """The fleet's engines are only looked at here; their tokenizer finds so many tokens, or is none (None), or hangs
    (a negative number)."""

    def __init__(self, tokens: int | None = None) -> None:
        self.tokens = tokens
        self.requests: list[bytes] = []

    async def count_tokens(self, request: bytes) -> int | None:
        self.requests.append(request)
        if self.tokens is None:
            raise TokenizeUnsupported
        if self.tokens < 0:
            await asyncio.Event().wait()
        return self.tokens


async def fleet_of(table: Table, *names: str) -> Fleet:
    fleet = Fleet(StaticDiscovery([]), Accounting(table, "r"), lambda url: Client(), probe_seconds=60)
    fleet.replace([Endpoint(name, f"http://{name}") for name in names])
    for watcher in [task for tasks in fleet._watchers.values() for task in tasks]:
        watcher.cancel()
    for engine in fleet:
        engine.models = ({"id": "m"},)
        engine.saw(Seen.PROBED)
    return fleet


async def routed(table: Table, *names: str) -> tuple[Router, Fleet]:
    fleet = await fleet_of(table, *names)
    await table.open(PROGRAM.id, owner="me", session="s1", now_ms=1)
    return Router(fleet, table, TokenCounter(fleet, lambda url: Client()), Rules()), fleet


async def place(router: Router) -> tuple[str, str]:
    placement = await router.place(PROGRAM, Asked("m"), tried=frozenset())
    return placement.engine.name, placement.reason


async def test_the_first_call_pins_and_the_next_follows() -> None:
    table = Table()
    router, _ = await routed(table, "a", "b")
    engine, reason = await place(router)
    assert reason == "new"
    assert await place(router) == (engine, "pinned")
    assert router.pin_moves == 1


async def test_a_quicker_replica_wins_and_its_pin_counts() -> None:
    table = Table()
    router, fleet = await routed(table, "a", "b")
    fleet.get("a").in_flight = 5  # type: ignore[union-attr]
    table.quicker = "a"
    assert await place(router) == ("a", "pinned")
    assert router.pin_moves == 0


async def test_a_quicker_replicas_pin_that_we_cannot_reach_is_left_alone() -> None:
    table = Table()
    router, _ = await routed(table, "a", "b")
    table.quicker = "unknown-here"
    engine, reason = await place(router)
    assert (engine in "ab", reason) == (True, "spilled")
    assert table.get(PROGRAM.id).engine == "unknown-here"  # type: ignore[union-attr]


async def test_with_the_store_away_the_call_goes_on_and_no_pin_moves() -> None:
    table = Table()
    router, _ = await routed(table, "a", "b")
    table.away = True
    engine, _ = await place(router)
    assert engine in "ab"
    assert table.get(PROGRAM.id).engine is None  # type: ignore[union-attr]


async def test_a_program_that_ended_meanwhile_is_served_without_a_pin() -> None:
    table = Table()
    router, _ = await routed(table, "a", "b")
    placing = asyncio.create_task(place(router))
    await asyncio.sleep(0)
    await table.end(PROGRAM.id)
    assert (await placing)[0] in "ab"


async def test_calls_that_arrive_at_once_move_the_pin_once() -> None:
    table = Table()
    router, _ = await routed(table, "a", "b")
    placed = await asyncio.gather(*(place(router) for _ in range(50)))
    assert len({engine for engine, _ in placed}) == 1
    assert table.attempts == 1


async def test_a_pin_on_an_engine_that_left_moves() -> None:
    table = Table()
    router, fleet = await routed(table, "a", "b")
    engine, _ = await place(router)
    other = "b" if engine == "a" else "a"
    fleet.get(engine).saw(Seen.UNREACHABLE)  # type: ignore[union-attr]
    assert await place(router) == (other, "only")
    assert table.get(PROGRAM.id).engine == other  # type: ignore[union-attr]


async def test_an_engine_that_leaves_while_the_pin_moves_is_not_used() -> None:
    table = Table()
    router, fleet = await routed(table, "a", "b")
    placing = asyncio.create_task(place(router))
    await asyncio.sleep(0)
    fleet.replace([])
    with pytest.raises(NoEngine):
        await placing


async def lengths(client: Client, *, policy: str = "autellix", threshold: int = 100) -> tuple[Router, Table]:
    table = Table()
    _, fleet = await routed(table, "a", "b")
    tokens = TokenCounter(fleet, lambda url: client, seconds=0.05)
    return Router(fleet, table, tokens, Rules(threshold_tokens=threshold), policy=policy), table


@pytest.mark.parametrize(
    ("size", "tokens", "short", "told_by"),
    [
        (100, 1, True, "bytes"),
        (1201, 1, False, "bytes"),
        (600, 100, True, "tokenizer"),
        (200, 101, False, "tokenizer"),
        (400, None, True, "estimate"),
        (404, None, False, "estimate"),
        (404, -1, False, "estimate"),
    ],
)
async def test_the_tokenizer_is_asked_where_bytes_do_not_tell(
    size: int, tokens: int | None, short: bool, told_by: str
) -> None:
    client = Client(tokens)
    router, _ = await lengths(client)
    asked = await router.asked(PROGRAM, "m", b"x" * size, lambda: b"the request")
    assert asked.short is short
    assert client.requests == ([] if told_by == "bytes" else [b"the request"])
    assert router.lengths == {"bytes": 0, "tokenizer": 0, "estimate": 0} | {told_by: 1}


async def test_engines_without_a_tokenizer_are_asked_once() -> None:
    client = Client(None)
    router, _ = await lengths(client)
    for _ in range(5):
        await router.asked(PROGRAM, "m", b"x" * 400, lambda: b"the request")
    assert len(client.requests) == 2, "one of each engine"


async def test_where_no_pin_is_at_stake_no_tokenizer_is_asked() -> None:
    client = Client(1)
    alone = program_of("me", None, "call")
    for router, program in (
        ((await lengths(client))[0], alone),
        ((await lengths(client, threshold=0))[0], PROGRAM),
        ((await lengths(client, policy="least_used"))[0], PROGRAM),
    ):
        await router.asked(program, "m", b"x" * 400, lambda: b"the request")
    assert client.requests == []


async def test_a_policy_without_pins_sets_none() -> None:
    router, table = await lengths(Client(), policy="round_robin")
    placed = [(await place(router)) for _ in range(4)]
    assert placed == [("a", "round_robin"), ("b", "round_robin")] * 2
    assert table.get(PROGRAM.id).engine is None  # type: ignore[union-attr]
    assert router.pin_moves == 0


async def test_prompts_that_begin_alike_are_placed_alike() -> None:
    router, _ = await lengths(Client(), policy="prefix_hash")
    alike = [await router.asked(PROGRAM, "m", b"x" * 2000 + tail, lambda: None) for tail in (b"1", b"2")]
    assert alike[0] == alike[1]
    assert (await router.asked(PROGRAM, "m", b"y", lambda: None)).prefix != alike[0].prefix
