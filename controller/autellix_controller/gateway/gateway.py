"""The hot path: one call from a client to an engine and back, as plain ASGI."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from autellix_controller.access import Access
from autellix_controller.background import cancel
from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.fleet import Fleet
from autellix_controller.engines.health import Seen
from autellix_controller.errors import CLIENT_CLOSED, ApiError, ErrorCode, invalid, shown
from autellix_controller.gateway import body as bodies
from autellix_controller.gateway import headers as header_rules
from autellix_controller.gateway.answers import EngineFailed
from autellix_controller.gateway.body import Body
from autellix_controller.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from autellix_controller.gateway.interrupt import Interruptible
from autellix_controller.gateway.relay import Attempt, Deadlines
from autellix_controller.gateway.upstream import NotConnected, Unreachable, Upstream, UpstreamFailed
from autellix_controller.logs import fields
from autellix_controller.metrics import CallMetrics
from autellix_controller.routing.decide import NoEngine
from autellix_controller.routing.router import Placement, Router
from autellix_controller.sessions import identity
from autellix_controller.sessions.identity import Program
from autellix_controller.sessions.programs import Programs
from autellix_controller.table.interface import ProcessTable
from autellix_wire import headers as names
from autellix_wire.context import ProgramContext

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 2


class Route(msgspec.Struct, frozen=True):
    """A path that is passed on to engines."""

    path: str
    generates: bool = True
    """Its calls are scheduled as calls of a program: they carry context, follow the pin and are charged."""
    streams_end_with_done: bool = True
    needs_model: bool = True


ROUTES: Final = {
    route.path: route
    for route in (
        Route("/v1/chat/completions"),
        Route("/v1/completions"),
        Route("/v1/responses", streams_end_with_done=False),
        Route("/v1/embeddings", generates=False),
        Route("/tokenize", generates=False, needs_model=False),
    )
}


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one call and of all."""

    calls: int
    body_bytes: int
    answer_bytes: int
    body_seconds: float
    deadlines: Deadlines


class _Call:
    """Facts of one call, gathered on its way, for receipt, metrics and log."""

    def __init__(self, route: Route, exchange: Exchange) -> None:
        self.route, self.exchange = route, exchange
        self.id = identity.new_call()
        self.request_id = identity.request_id(exchange.header(names.REQUEST_ID.encode()))
        self.thread: str | None = None
        self.program: Program | None = None
        self.placement: Placement | None = None
        self.started = time.monotonic()
        self.first_byte_at: float | None = None
        self.error = ""


class Gateway:
    """Serves the paths of ``ROUTES``."""

    def __init__(
        self,
        *,
        access: Access,
        programs: Programs,
        table: ProcessTable,
        router: Router,
        fleet: Fleet,
        accounting: Accounting,
        upstream: Upstream,
        metrics: CallMetrics,
        limits: Limits,
        replica: str,
        engine_key: str | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._access, self._programs, self._table = access, programs, table
        self._router, self._fleet, self._accounting = router, fleet, accounting
        self._upstream, self._metrics, self._limits = upstream, metrics, limits
        self._replica, self._engine_key, self._now_ms = replica, engine_key, now_ms
        self._running: set[Interruptible] = set()

    @property
    def running(self) -> int:
        """Calls that are being served."""
        return len(self._running)

    def interrupt_all(self) -> None:
        """Ends all running calls with an error: the replica stops now."""
        for work in list(self._running):
            work.interrupt(ApiError(ErrorCode.SHUTTING_DOWN, "The controller is stopping.", retry_after_seconds=1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request of ``ROUTES``."""
        exchange = Exchange(scope, receive, send)
        call = _Call(ROUTES[exchange.path], exchange)
        exchange.receipt.append((names.REQUEST_ID.encode(), call.request_id.encode()))
        status = 0
        work = Interruptible()
        try:
            try:
                async with work:
                    await self._admit(call, work)
            except ApiError as error:
                status, call.error = error.status, error.message
                await exchange.fail(error)
            except ClientGone:
                status = CLIENT_CLOSED
            except Exception as error:
                status, call.error = ErrorCode.INTERNAL.status, f"{type(error).__name__}: {error}"
                log.exception("call failed by a defect", extra=fields(request=call.request_id))
                await exchange.fail(ApiError(ErrorCode.INTERNAL, "The controller failed to serve the call."))
        finally:
            self._report(call, status or exchange.status or CLIENT_CLOSED)

    def _report(self, call: _Call, status: int) -> None:
        ended = time.monotonic()
        self._metrics.ended(call.route.path, status, ended - call.started)
        if call.first_byte_at is not None:
            self._metrics.first_byte(call.first_byte_at - call.started)
        log.info(
            "call",
            extra=fields(
                request=call.request_id,
                call=call.id,
                path=call.route.path,
                status=status,
                owner=call.program.owner if call.program else None,
                program=call.program.id if call.program else None,
                thread=call.thread,
                engine=call.placement.engine.name if call.placement else None,
                route=call.placement.reason if call.placement else None,
                seconds=round(ended - call.started, 4),
                error=call.error or None,
            ),
        )

    async def _admit(self, call: _Call, work: Interruptible) -> None:
        """Everything that needs no engine: who, what, and is there room."""
        exchange = call.exchange
        owner = self._access.owner(exchange.header(b"authorization"))
        if exchange.method != "POST":
            exchange.receipt.append((b"allow", b"POST"))
            raise ApiError(ErrorCode.METHOD_NOT_ALLOWED, f"{exchange.path} takes POST only.")
        bodies.check_headers(exchange.header(b"content-type"), exchange.header(b"content-encoding"))
        if len(self._running) >= self._limits.calls:
            raise ApiError(ErrorCode.CONTENDED, "Too many calls are running; try again.", retry_after_seconds=1)
        self._running.add(work)
        try:
            raw = await exchange.body(self._limits.body_bytes, self._limits.body_seconds)
            body = bodies.parse(raw)
            self._check_model(call.route, body.model)
            session = exchange.header(names.SESSION.encode())
            thread = exchange.header(names.THREAD.encode())
            if thread is not None:
                call.thread = identity.checked_header(thread, param="X-Autellix-Thread")
            name = None if session is None else identity.checked_header(session, param="X-Autellix-Session")
            call.program = identity.program_of(owner, name, call.id)
            exchange.receipt.append((names.PROGRAM.encode(), call.program.id.encode()))
            watcher = asyncio.create_task(exchange.interrupt_when_gone(work))
            try:
                await self._of_program(call, call.program, body)
            finally:
                await cancel(watcher)
        finally:
            self._running.discard(work)

    def _check_model(self, route: Route, model: str | None) -> None:
        if model is None:
            if route.needs_model:
                raise invalid("model is required.", param="model")
        elif self._fleet.has_models and not self._fleet.knows_model(model):
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"There is no model {shown(model)!r}.", param="model")

    async def _of_program(self, call: _Call, program: Program, body: Body) -> None:
        if program.session is None:
            await self._attempts(call, program, body)
            return
        await self._programs.open(program.owner, program.session)
        self._table.arrived(program.id, self._now_ms())
        try:
            await self._attempts(call, program, body)
        finally:
            self._table.departed(program.id, self._now_ms())

    async def _attempts(self, call: _Call, program: Program, body: Body) -> None:
        """Tries an engine, and one more as long as the client has not got a byte."""
        ends_at = asyncio.get_running_loop().time() + self._limits.deadlines.total
        short = not call.route.generates or self._router.is_short(body.prompt)
        receipt = call.exchange.receipt
        tried: frozenset[str] = frozenset()
        failure: EngineFailed | None = None
        for _ in range(_ATTEMPTS):
            try:
                call.placement = await self._router.place(program, body.model, short=short, tried=tried)
            except NoEngine:
                if failure is None:
                    raise ApiError(
                        ErrorCode.NO_ENGINE, "No engine can take the call now.", retry_after_seconds=2
                    ) from None
                break
            call.exchange.receipt = [
                *receipt,
                (names.ENGINE.encode(), call.placement.engine.name.encode()),
                (names.ROUTE.encode(), call.placement.reason.encode()),
            ]
            self._metrics.placed(call.placement.reason, again=failure is not None)
            try:
                await self._attempt(call, program, body, call.placement, ends_at)
                return
            except EngineFailed as error:
                failure = error
                log.warning(
                    "attempt failed",
                    extra=fields(
                        request=call.request_id, call=call.id, engine=call.placement.engine.name, reason=str(error)
                    ),
                )
                if call.exchange.started or not error.retry:
                    break
                tried |= {call.placement.engine.name}
        assert failure is not None
        raise ApiError(failure.code, str(failure), retry_after_seconds=failure.retry_after_seconds)

    async def _attempt(self, call: _Call, program: Program, body: Body, placement: Placement, ends_at: float) -> None:
        """One attempt on one engine, with its effects on the engine's health and on accounts."""
        engine, exchange = placement.engine, call.exchange
        context = self._context(call, program)
        attempt = Attempt(
            exchange,
            ends_at=ends_at,
            deadlines=self._limits.deadlines,
            answer_limit=self._limits.answer_bytes,
            needs_done=call.route.streams_end_with_done,
        )
        headers = header_rules.to_engine(exchange.headers, request_id=call.request_id, key=self._engine_key)
        # Asked once: who charges the call is settled when it is sent.
        has_records = engine.has_records
        payload = body.with_context(context if has_records else None)
        started, reached = time.monotonic(), True
        engine.in_flight += 1
        try:
            await attempt.run(self._upstream, engine.endpoint.url + exchange.target, payload, headers)
            self._fleet.saw(engine, Seen.ANSWERED)
        except NotConnected as error:
            reached = False
            refused = isinstance(error, Unreachable)
            self._fleet.saw(engine, Seen.UNREACHABLE if refused else Seen.FAILED, f"not reachable: {error}")
            raise EngineFailed(
                "The engine could not be reached.", retry=True, code=ErrorCode.NO_ENGINE, retry_after_seconds=2
            ) from error
        except UpstreamFailed as error:
            self._fleet.saw(engine, Seen.FAILED, str(error))
            raise EngineFailed("The connection to the engine broke.", retry=True) from error
        except EngineFailed as error:
            if error.blames_engine:
                self._fleet.saw(engine, Seen.FAILED, str(error))
            raise
        finally:
            engine.in_flight -= 1
            call.first_byte_at = attempt.first_byte_at
            if reached and context is not None and program.session is not None and not has_records:
                self._accounting.estimate(
                    program.id,
                    context,
                    engine=engine.name,
                    ran_ms=(time.monotonic() - started) * 1000.0,
                    now_ms=self._now_ms(),
                )

    def _context(self, call: _Call, program: Program) -> ProgramContext | None:
        """What an engine is told of the program: its figures as they are now."""
        if not call.route.generates:
            return None
        entry = self._programs.known(program)
        if entry is None:
            return ProgramContext(program=program.id, call=call.id, replica=self._replica)
        return ProgramContext(
            program=entry.engine_program,
            call=call.id,
            replica=self._replica,
            service_ms=entry.service_ms,
            path_ms=entry.path_ms,
            wait_ms=entry.wait_ms,
        )
