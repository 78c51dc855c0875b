"""The hot path: one call from a client to an engine and back, as plain ASGI."""

import logging
import time
from collections.abc import Callable

import msgspec

from autellix_controller.access import Access
from autellix_controller.engines.fleet import Fleet
from autellix_controller.errors import CLIENT_CLOSED, ApiError, ErrorCode, invalid, no_model
from autellix_controller.gateway.attempts import Attempts
from autellix_controller.gateway.body import Body, check_headers, parse
from autellix_controller.gateway.budget import ByteBudget
from autellix_controller.gateway.call import Call
from autellix_controller.gateway.cancelling import ProgramCalls
from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.exchange import CLOSE, ClientGone, Exchange, Receive, Scope, Send
from autellix_controller.gateway.interrupt import Interruptible
from autellix_controller.gateway.rates import TenantRates
from autellix_controller.gateway.routes import ROUTES, Route
from autellix_controller.gateway.shares import Shares
from autellix_controller.gateway.tracing import Tracing
from autellix_controller.logs import fields
from autellix_controller.metrics import CallMetrics, QueueMetrics
from autellix_controller.sessions.identity import Program, SessionHeaders, program_of
from autellix_controller.sessions.programs import Programs
from autellix_controller.table.interface import ProcessTable

log = logging.getLogger(__name__)


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one call and of all."""

    calls: int
    body_bytes: int
    bodies_bytes: int
    """Of all bodies that are held at once."""
    body_seconds: float


class Gateway:
    """Serves the paths of ``ROUTES``."""

    def __init__(
        self,
        *,
        access: Access,
        programs: Programs,
        table: ProcessTable,
        fleet: Fleet,
        attempts: Attempts,
        rates: TenantRates,
        metrics: CallMetrics,
        queue_metrics: QueueMetrics,
        session_headers: SessionHeaders,
        limits: Limits,
        timer: DeadlineTimer,
        now_ms: Callable[[], int],
        tracing: Tracing | None = None,
    ) -> None:
        """``tracing`` None: calls are not traced, though their trace context passes."""
        self._access, self._programs, self._table, self._fleet = access, programs, table, fleet
        self._attempts, self._rates = attempts, rates
        self._metrics, self._queue_metrics = metrics, queue_metrics
        self._session_headers, self._limits, self._timer = session_headers, limits, timer
        self._now_ms, self._tracing = now_ms, tracing
        self._bodies = ByteBudget(limits.bodies_bytes, alone=access.has_one_tenant)
        self._places = Shares(limits.calls, alone=access.has_one_tenant)
        self._running: set[Interruptible] = set()
        self.leaving = False
        """Every call is the last one of its connection: the replica stops. Clients then open their next connection, to
        another replica; one that they keep would be closed at the end, perhaps just when a request is on its way."""
        self.calls = ProgramCalls(table)

    @property
    def running(self) -> int:
        """Calls that are being served."""
        return len(self._running)

    @property
    def body_bytes(self) -> int:
        """Bytes of the request bodies that are held now."""
        return self._bodies.used

    def interrupt_all(self) -> None:
        """Ends all running calls with an error: the replica stops now."""
        for work in list(self._running):
            work.interrupt(ApiError(ErrorCode.SHUTTING_DOWN, "The controller is stopping.", retry_after_seconds=1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request of ``ROUTES``."""
        exchange = Exchange(scope, receive, send)
        if self.leaving:
            exchange.receipt.append(CLOSE)
        call = Call(ROUTES[exchange.path], exchange)
        span = self._tracing.start(call.route.path, exchange.headers) if self._tracing is not None else None
        call.span = span
        status = 0
        work = Interruptible()
        try:
            try:
                with work:
                    await self._admit(call, work)
            except ApiError as error:
                status, call.error = error.status, error.message
                if status == 429:
                    self._queue_metrics.refused(error.param or error.code.code)
                await exchange.fail(error)
            except ClientGone:
                status = CLIENT_CLOSED
            except Exception as error:
                status, call.error = ErrorCode.INTERNAL.status, f"{type(error).__name__}: {error}"
                log.exception("call failed by a defect", extra=fields(request=call.request_id))
                await exchange.fail(ApiError(ErrorCode.INTERNAL, "The controller failed to serve the call."))
        finally:
            self._report(call, status or exchange.status or CLIENT_CLOSED)

    def _report(self, call: Call, status: int) -> None:
        ended = time.monotonic()
        self._metrics.ended(call.route.path, status, ended - call.started)
        if call.added_seconds is not None:
            self._metrics.sent(call.added_seconds)
        if call.first_byte_at is not None:
            self._metrics.first_byte(call.first_byte_at - call.started)
        if call.span is not None:
            call.span.end(status, call.error, call.receipts())
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
                queued_seconds=round(call.queued_seconds, 4) or None,
                error=call.error or None,
            ),
        )

    async def _admit(self, call: Call, work: Interruptible) -> None:
        """Everything that needs no engine: who, what, and is there room."""
        exchange = call.exchange
        owner = self._access.owner(exchange.header(b"authorization"))
        if exchange.method != "POST":
            exchange.receipt.append((b"allow", b"POST"))
            raise ApiError(ErrorCode.METHOD_NOT_ALLOWED, f"{exchange.path} takes POST only.")
        check_headers(exchange.header(b"content-type"), exchange.header(b"content-encoding"))
        if not self._places.take(owner, 1):
            raise ApiError(
                ErrorCode.CONTENDED,
                "Too many calls are running; try again.",
                param="max_calls",
                retry_after_seconds=1,
            )
        self._running.add(work)
        share = self._bodies.open(owner)
        try:
            raw = await exchange.body(self._limits.body_bytes, self._limits.body_seconds, share, self._timer)
            body = parse(raw)
            self._check_model(call.route, body.model)
            session, call.thread = self._session_headers.read(exchange.header)
            program = program_of(owner, session, call.id)
            call.belongs_to(program)
            self._rates.admit(owner)
            exchange.interrupt_when_gone(work)
            await self._of_program(call, program, body, work)
        finally:
            share.close()
            self._places.give_back(owner, 1)
            self._running.discard(work)
            await exchange.close()

    def _check_model(self, route: Route, model: str | None) -> None:
        if model is None:
            if route.needs_model:
                raise invalid("model is required.", param="model")
        elif self._fleet.lacks(model):
            raise no_model(model)

    async def _of_program(self, call: Call, program: Program, body: Body, work: Interruptible) -> None:
        if program.session is None:
            await self._attempts.serve(call, program, body)
            return
        limits = self._access.limits(program.owner)
        entry = await self._programs.open(program.owner, program.session, most=limits.programs)
        self._table.arrived(program.id, self._now_ms())
        self.calls.add(program.id, entry.created_ms, work)
        try:
            await self._attempts.serve(call, program, body)
        finally:
            self.calls.discard(program.id, work)
            self._table.departed(program.id, self._now_ms())
