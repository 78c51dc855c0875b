"""Places on engines: a call gets one, or waits for it in the admission queue."""

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from autellix_controller.engines.engine import Engine
from autellix_controller.engines.fleet import Fleet
from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.gateway.admission import AdmissionQueue, Waiting
from autellix_controller.gateway.patience import Patience, Wait
from autellix_controller.metrics import QueueMetrics
from autellix_controller.routing.decide import NoEngine
from autellix_controller.routing.router import Asked, Placement, Router
from autellix_controller.sessions.identity import Program

#: While calls wait, engines are looked at so often, and calls that have waited for too long are told. An end of one of
#: our own calls is seen at once; this is for what else makes room: engines that are found, come back, or learn a model.
_LOOK_SECONDS: Final = 0.1


class Bounds(msgspec.Struct, frozen=True):
    """How much runs and waits at most."""

    engine_calls: int
    """Calls of this replica at once on one engine."""
    queue_calls: int
    patience: Patience


class _Lane(msgspec.Struct, frozen=True):
    """Which engines a call may go to."""

    model: str | None
    tried: frozenset[str]


class _Waiter(msgspec.Struct, frozen=True):
    """A call in the queue."""

    turn: "asyncio.Future[None]"
    lane: _Lane
    wait: Wait


class Slots:
    """Gives every call a place on an engine, within the bounds of engines and tenants."""

    def __init__(
        self,
        fleet: Fleet,
        router: Router,
        bounds: Bounds,
        *,
        tenant_calls: Callable[[str], int | None],
        metrics: QueueMetrics,
    ) -> None:
        """``tenant_calls``: calls that a tenant may run at once, None for any number."""
        self._fleet, self._router, self._bounds = fleet, router, bounds
        self._tenant_calls, self._metrics = tenant_calls, metrics
        self._queue = AdmissionQueue(bounds.queue_calls)
        self._waiters: dict[int, _Waiter] = {}
        """In the order in which they joined the queue."""
        self._numbers = itertools.count(1)
        self._placing = 0
        """Calls whose turn has come and that have no engine yet: they will take room that still looks free."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @property
    def held(self) -> int:
        """Calls in the queue for which no engine serves."""
        return sum(waiter.wait.held for waiter in self._waiters.values())

    def running(self, tenant: str) -> int:
        """Calls of a tenant that have a place, or are about to get one."""
        return self._queue.running(tenant)

    async def take(
        self,
        program: Program,
        asked: Asked,
        *,
        service_ms: float,
        tried: frozenset[str],
        ends_at: float,
    ) -> Placement:
        """A place for a call, which ``release`` gives back. After too long a wait, ``ends_at`` on the loop's clock at
        the latest, raises ApiError 429 if engines serve, and NoEngine if none does: at once where calls are not held.

        ``service_ms`` orders the queue. A program whose engine is full goes to another one for this call only. A call
        that engines failed already (``tried``) is not held.
        """
        lane = _Lane(asked.model, tried)
        wait: Wait | None = None
        while True:
            if not self._starts_at_once(program.owner, lane):
                wait = wait or Wait(asyncio.get_running_loop().time())
                await self._turn(program.owner, lane, service_ms, wait, ends_at)
            try:
                placement = await self._place(program, asked, lane)
                if placement is not None:
                    placement.engine.in_flight += 1
                    return placement
                self._queue.ended(program.owner)
            except BaseException:
                self._queue.ended(program.owner)
                raise
            finally:
                self._placing -= 1
                self._admit()

    def release(self, program: Program, engine: Engine) -> None:
        """Gives a place back."""
        engine.in_flight -= 1
        self._queue.ended(program.owner)
        self._admit()

    async def _place(self, program: Program, asked: Asked, lane: _Lane) -> Placement | None:
        """An engine with room; None if the call has to wait again: all that could serve it are full or gone by now."""
        while True:
            full = self._full()
            try:
                placement = await self._router.place(program, asked, tried=lane.tried | full)
            except NoEngine:
                if self._holds(lane) or (full - lane.tried and self._candidates(lane)):
                    return None
                raise
            if placement.engine.in_flight < self._bounds.engine_calls:
                return placement
            # Another call moved the program's pin there while this one waited for the table.

    def _full(self) -> frozenset[str]:
        bound = self._bounds.engine_calls
        return frozenset([engine.name for engine in self._fleet if engine.in_flight >= bound])

    def _candidates(self, lane: _Lane) -> list[Engine]:
        """The engines that the router may choose from, full or not."""
        names = [view.name for view in self._fleet.views(lane.model, time.monotonic()) if view.name not in lane.tried]
        return [engine for name in names if (engine := self._fleet.get(name)) is not None]

    def _holds(self, lane: _Lane) -> bool:
        """Whether calls of the lane wait for an engine to be there at all."""
        if not self._bounds.patience.engine_seconds or lane.tried:
            return False
        return not self._fleet.serves(lane.model)

    def _has_room(self, lane: Hashable) -> bool:
        assert isinstance(lane, _Lane)
        if self._holds(lane):
            return False
        most = max([engine.in_flight for engine in self._fleet], default=0)
        if most + self._placing < self._bounds.engine_calls:
            return True  # the usual case, which every call passes
        engines = self._candidates(lane)
        if not engines:  # nothing to wait for: the call is told so
            return True
        room = sum(max(0, self._bounds.engine_calls - engine.in_flight) for engine in engines)
        return room > self._placing

    def _starts_at_once(self, tenant: str, lane: _Lane) -> bool:
        """Whether the call may be placed without a wait; it counts as running then."""
        if self._waiters:
            return False
        bound = self._tenant_calls(tenant)
        if (bound is not None and self._queue.running(tenant) >= bound) or not self._has_room(lane):
            return False
        self._queue.started(tenant)
        self._placing += 1
        return True

    async def _turn(self, tenant: str, lane: _Lane, service_ms: float, wait: Wait, ends_at: float) -> None:
        """Lets the call wait until it may be placed; it counts as running from then on. Raises ApiError 429 and
        NoEngine."""
        loop = asyncio.get_running_loop()
        call = Waiting(next(self._numbers), tenant, lane, service_ms)
        waiter = self._waiters[call.key] = _Waiter(loop.create_future(), lane, wait)
        joined = loop.time()
        wait.sees(joined, engine=not self._holds(lane))
        displaced = self._queue.add(call)
        if displaced is not None:
            self._refuse(displaced.key, self._contended("The queue for engines is full.", "queue_calls"))
        self._admit()
        try:
            async with asyncio.timeout_at(ends_at):
                await waiter.turn
        except TimeoutError:
            error = self._too_long(wait)
            self._gone(call, waiter.turn)
            raise error from None
        except asyncio.CancelledError:
            self._gone(call, waiter.turn)
            raise
        finally:
            self._metrics.waited(loop.time() - joined)

    def _refuse(self, key: int, error: Exception) -> None:
        """Ends the wait of a call in the queue with an error."""
        self._queue.remove(key)
        if not (turn := self._waiters.pop(key).turn).done():  # done: its client has just left
            turn.set_exception(error)

    def _gone(self, call: Waiting, turn: "asyncio.Future[None]") -> None:
        """A waiting call leaves, perhaps in the very moment in which its turn came."""
        if call.key in self._waiters:
            self._queue.remove(call.key)
            del self._waiters[call.key]
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            self._queue.ended(call.tenant)
            self._placing -= 1
            self._admit()

    def _too_long(self, wait: Wait) -> Exception:
        if wait.held:
            return NoEngine()
        seconds = self._bounds.patience.room_seconds
        return self._contended(f"No place was free for the call within {seconds:g} s.", "queue_seconds")

    def _contended(self, message: str, bound: str) -> ApiError:
        """Whoever comes back after as long as the first in the queue has waited will meet another queue."""
        now = asyncio.get_running_loop().time()
        first = next(iter(self._waiters.values()), None)
        waited = now - first.wait.came if first is not None else 0.0
        return ApiError(ErrorCode.CONTENDED, message, param=bound, retry_after_seconds=max(1, math.ceil(waited)))

    def _admit(self) -> None:
        """Lets calls start as long as there is room."""
        while self._waiters:
            call = self._queue.next(has_room=self._has_room, bound=self._tenant_calls)
            if call is None:
                break
            if (turn := self._waiters.pop(call.key).turn).done():  # its client has just left
                self._queue.ended(call.tenant)
                continue
            self._placing += 1
            turn.set_result(None)
        if self._waiters and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._end_waits()
        self._admit()

    def _end_waits(self) -> None:
        """Tells calls that have waited for too long, or for what will not come."""
        now = asyncio.get_running_loop().time()
        holds = {lane: self._holds(lane) for lane in {waiter.lane for waiter in self._waiters.values()}}
        for key, waiter in list(self._waiters.items()):
            lane, wait = waiter.lane, waiter.wait
            wait.sees(now, engine=not holds[lane])
            if wait.held and self._fleet.lacks(lane.model):
                self._refuse(key, NoEngine())
            elif wait.over(now, self._bounds.patience):
                self._refuse(key, self._too_long(wait))
