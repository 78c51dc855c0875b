"""Places on engines, where the router says what a real one says only in rare moments."""

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from autellix_controller.engines.engine import Endpoint, Engine
from autellix_controller.engines.health import Seen
from autellix_controller.gateway.patience import Patience
from autellix_controller.gateway.slots import Bounds, Slots
from autellix_controller.metrics import QueueMetrics
from autellix_controller.routing.decide import EngineView, NoEngine
from autellix_controller.routing.router import Asked, Placement
from autellix_controller.sessions.identity import Program

PROGRAM = Program("p", "me", "s")


class Fleet(list[Engine]):
    def get(self, name: str) -> Engine | None:
        return next((engine for engine in self if engine.name == name), None)

    def views(self, model: str | None, now: float) -> tuple[EngineView, ...]:
        return tuple(EngineView(engine.name, engine.in_flight) for engine in self)

    def serves(self, model: str | None) -> bool:
        return bool(self)

    def lacks(self, model: str | None) -> bool:
        return False


class Router:
    """Chooses the first engine that was not tried; ``before`` runs while it "waits for the table"."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.before: Callable[[], None] = lambda: None

    async def place(self, program: Program, asked: Asked, *, tried: frozenset[str]) -> Placement:
        able = [engine for engine in self._fleet if engine.name not in tried]
        await asyncio.sleep(0)
        self.before()
        if not able or able[0] not in self._fleet:  # it left meanwhile
            raise NoEngine
        return Placement(able[0], "new")


def world(engines: int = 2, *, hold: float = 0.0) -> tuple[Slots, Fleet, Router]:
    fleet = Fleet(Engine(Endpoint(f"e{number}", "http://x")) for number in range(engines))
    for engine in fleet:
        engine.saw(Seen.PROBED)
    router = Router(fleet)
    slots = Slots(
        fleet,  # type: ignore[arg-type]
        router,  # type: ignore[arg-type]
        Bounds(engine_calls=1, queue_calls=10, patience=Patience(room_seconds=5, engine_seconds=hold)),
        tenant_calls=lambda tenant: None,
        metrics=QueueMetrics(CollectorRegistry()),
    )
    return slots, fleet, router


async def take(slots: Slots, *, tried: frozenset[str] = frozenset(), seconds: float = 10) -> Placement:
    ends_at = asyncio.get_running_loop().time() + seconds
    return await slots.take(PROGRAM, Asked(None), service_ms=0.0, tried=tried, ends_at=ends_at)


async def test_an_engine_that_filled_up_meanwhile_is_not_overfilled() -> None:
    slots, (first, second), router = world()

    def fill() -> None:
        first.in_flight, router.before = 1, lambda: None

    router.before = fill
    assert (await take(slots)).engine is second
    assert (first.in_flight, second.in_flight) == (1, 1)


async def test_a_call_whose_engines_all_filled_up_meanwhile_waits_again() -> None:
    slots, (engine,), router = world(engines=1)

    def fill() -> None:
        engine.in_flight, router.before = 1, lambda: None

    router.before = fill
    task = asyncio.create_task(take(slots))
    async with asyncio.timeout(60):
        while not slots.waiting:
            await asyncio.sleep(0)
    assert slots.running("me") == 0
    engine.in_flight = 0  # seen when engines are looked at the next time
    assert (await task).engine is engine
    assert slots.running("me") == 1
    slots.release(PROGRAM, engine)
    assert (slots.running("me"), engine.in_flight, slots.waiting) == (0, 0, 0)


async def test_a_call_that_ends_in_the_moment_of_its_turn_gives_it_back() -> None:
    slots, (engine,), _ = world(engines=1)
    held = await take(slots)
    second, third = asyncio.create_task(take(slots)), asyncio.create_task(take(slots))
    async with asyncio.timeout(60):
        while slots.waiting < 2:
            await asyncio.sleep(0)
    slots.release(PROGRAM, held.engine)
    second.cancel()  # its turn has come, and it has not run yet
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await third).engine is engine
    slots.release(PROGRAM, engine)
    assert (slots.running("me"), engine.in_flight) == (0, 0)


async def test_a_failure_of_the_router_gives_the_place_back() -> None:
    slots, _, router = world()

    def defect() -> None:
        raise ZeroDivisionError

    router.before = defect
    with pytest.raises(ZeroDivisionError):
        await take(slots)
    assert slots.running("me") == 0
    router.before = lambda: None
    slots.release(PROGRAM, (await take(slots)).engine)


async def test_a_call_whose_only_engine_leaves_while_it_is_placed_is_held() -> None:
    slots, fleet, router = world(engines=1, hold=5)
    (engine,) = fleet

    def leave() -> None:
        fleet.clear()
        router.before = lambda: None

    router.before = leave
    task = asyncio.create_task(take(slots))
    async with asyncio.timeout(60):
        while not slots.held:
            await asyncio.sleep(0)
    assert (slots.waiting, slots.running("me")) == (1, 0)
    fleet.append(engine)
    assert (await task).engine is engine
    slots.release(PROGRAM, engine)
    assert (slots.running("me"), engine.in_flight, slots.waiting, slots.held) == (0, 0, 0, 0)


@pytest.mark.parametrize("seconds", [0.05, 10], ids=["the deadline of the call", "the time to hold"])
async def test_a_held_call_is_told_that_there_is_no_engine_when_its_time_is_over(seconds: float) -> None:
    slots, *_ = world(engines=0, hold=0.2)
    with pytest.raises(NoEngine):
        await take(slots, seconds=seconds)
    assert (slots.running("me"), slots.waiting) == (0, 0)


async def test_a_call_that_an_engine_failed_is_not_held() -> None:
    slots, *_ = world(engines=0, hold=5)
    with pytest.raises(NoEngine):
        await take(slots, tried=frozenset({"e0"}))
    assert (slots.running("me"), slots.waiting) == (0, 0)
