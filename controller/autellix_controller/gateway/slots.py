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
from autellix_controller.metrics import QueueMetrics
from autellix_controller.routing.decide import NoEngine
from autellix_controller.routing.router import Asked, Placement, Router
from autellix_controller.sessions.identity import Program

#: While calls wait, engines are looked at so often. An end of one of our own calls is seen at once; this is for what
#: else makes room: engines that are found, come back, or learn a model.
_LOOK_SECONDS: Final = 0.1


class Bounds(msgspec.Struct, frozen=True):
    """How much runs and waits at most."""

    engine_calls: int
    """Calls of this replica at once on one engine."""
    queue_calls: int
    queue_seconds: float


class _Lane(msgspec.Struct, frozen=True):
    """Which engines a call may go to."""

    model: str | None
    tried: frozenset[str]


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
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._came: dict[int, float] = {}
        """When each waiting call came, in order."""
        self._numbers = itertools.count(1)
        self._placing = 0
        """Calls whose turn has come and that have no engine yet: they will take room that still looks free."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

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
        """A place for a call, which ``release`` gives back. Raises NoEngine, and ApiError 429 after too long a wait,
        ``ends_at`` on the loop's clock at the latest.

        ``service_ms`` orders the queue. A program whose engine is full goes to another one for this call only.
        """
        give_up_at = min(ends_at, asyncio.get_running_loop().time() + self._bounds.queue_seconds)
        while True:
            await self._turn(program.owner, _Lane(asked.model, tried), service_ms, give_up_at)
            try:
                placement = await self._place(program, asked, tried=tried)
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

    async def _place(self, program: Program, asked: Asked, *, tried: frozenset[str]) -> Placement | None:
        """An engine with room; None if all that could serve the call are full by now."""
        while True:
            full = self._full()
            try:
                placement = await self._router.place(program, asked, tried=tried | full)
            except NoEngine:
                if full - tried and self._candidates(_Lane(asked.model, tried)):
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

    def _has_room(self, lane: Hashable) -> bool:
        assert isinstance(lane, _Lane)
        if all(engine.in_flight + self._placing < self._bounds.engine_calls for engine in self._fleet):
            return True  # the usual case, which every call passes
        engines = self._candidates(lane)
        if not engines:  # nothing to wait for: the call is told so
            return True
        room = sum(max(0, self._bounds.engine_calls - engine.in_flight) for engine in engines)
        return room > self._placing

    async def _turn(self, tenant: str, lane: _Lane, service_ms: float, give_up_at: float) -> None:
        """Returns when the call may be placed; it counts as running from then on. Raises ApiError 429."""
        bound = self._tenant_calls(tenant)
        if not self._waiters and (bound is None or self._queue.running(tenant) < bound) and self._has_room(lane):
            self._queue.started(tenant)
            self._placing += 1
            return
        loop = asyncio.get_running_loop()
        call = Waiting(next(self._numbers), tenant, lane, service_ms)
        waiter = self._waiters[call.key] = loop.create_future()
        self._came[call.key] = came = loop.time()
        displaced = self._queue.add(call)
        if displaced is not None:
            error = self._contended("The queue for engines is full.", "queue_calls")
            if not (loser := self._forget(displaced.key)).done():  # done: its client has just left
                loser.set_exception(error)
        self._admit()
        try:
            async with asyncio.timeout_at(give_up_at):
                await waiter
        except TimeoutError:
            error = self._contended(
                f"No place was free for the call within {self._bounds.queue_seconds:g} s.", "queue_seconds"
            )
            self._gone(call, waiter)
            raise error from None
        except asyncio.CancelledError:
            self._gone(call, waiter)
            raise
        finally:
            self._metrics.waited(loop.time() - came)

    def _forget(self, key: int) -> "asyncio.Future[None]":
        del self._came[key]
        return self._waiters.pop(key)

    def _gone(self, call: Waiting, waiter: "asyncio.Future[None]") -> None:
        """A waiting call leaves, perhaps in the very moment in which its turn came."""
        if call.key in self._waiters:
            self._queue.remove(call.key)
            self._forget(call.key)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._queue.ended(call.tenant)
            self._placing -= 1
            self._admit()

    def _contended(self, message: str, bound: str) -> ApiError:
        """Whoever comes back after as long as the first in the queue has waited will meet another queue."""
        now = asyncio.get_running_loop().time()
        waited = now - next(iter(self._came.values()), now)
        return ApiError(ErrorCode.CONTENDED, message, param=bound, retry_after_seconds=max(1, math.ceil(waited)))

    def _admit(self) -> None:
        """Lets calls start as long as there is room."""
        while self._waiters:
            call = self._queue.next(has_room=self._has_room, bound=self._tenant_calls)
            if call is None:
                break
            if (waiter := self._forget(call.key)).done():  # its client has just left
                self._queue.ended(call.tenant)
                continue
            self._placing += 1
            waiter.set_result(None)
        if self._waiters and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._admit()
