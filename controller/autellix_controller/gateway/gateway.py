"""The hot path: one call from a client to an engine and back, as plain ASGI."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from autellix_controller.access import Access
from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.engine import Engine
from autellix_controller.engines.fleet import Fleet
from autellix_controller.engines.health import Seen
from autellix_controller.errors import CLIENT_CLOSED, ApiError, ErrorCode, invalid, shown
from autellix_controller.gateway import headers as header_rules
from autellix_controller.gateway.answers import EngineFailed
from autellix_controller.gateway.body import Body, check_headers, parse
from autellix_controller.gateway.budget import ByteBudget
from autellix_controller.gateway.call import Call
from autellix_controller.gateway.cancelling import ProgramCalls
from autellix_controller.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from autellix_controller.gateway.interrupt import Interruptible
from autellix_controller.gateway.rates import TenantRates
from autellix_controller.gateway.relay import Attempt, Deadlines
from autellix_controller.gateway.routes import ROUTES, Route
from autellix_controller.gateway.slots import Slots
from autellix_controller.gateway.tracing import Tracing
from autellix_controller.gateway.upstream import NotConnected, Unreachable, Upstream, UpstreamFailed
from autellix_controller.gateway.usage import TokenCount
from autellix_controller.logs import fields
from autellix_controller.metrics import CallMetrics, QueueMetrics
from autellix_controller.routing.decide import NoEngine
from autellix_controller.routing.length import estimated_tokens
from autellix_controller.routing.router import Asked, Router
from autellix_controller.sessions.identity import Program, SessionHeaders, program_of
from autellix_controller.sessions.programs import Programs
from autellix_controller.table.interface import ProcessTable
from autellix_wire.context import ProgramContext

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 2


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one call and of all."""

    calls: int
    body_bytes: int
    bodies_bytes: int
    """Of all bodies that are held at once."""
    answer_bytes: int
    body_seconds: float
    deadlines: Deadlines


class Identity(msgspec.Struct, frozen=True):
    """What the replica is towards engines."""

    replica: str
    engine_key: str | None
    isolate_prefix_cache: bool
    """Calls of one tenant never use prefixes that another one's have cached."""


class Gateway:
    """Serves the paths of ``ROUTES``."""

    def __init__(
        self,
        *,
        access: Access,
        programs: Programs,
        table: ProcessTable,
        slots: Slots,
        fleet: Fleet,
        router: Router,
        accounting: Accounting,
        upstream: Upstream,
        metrics: CallMetrics,
        queue_metrics: QueueMetrics,
        session_headers: SessionHeaders,
        limits: Limits,
        identity: Identity,
        now_ms: Callable[[], int],
        tracing: Tracing | None = None,
    ) -> None:
        """``tracing`` None: calls are not traced, though their trace context passes."""
        self._access, self._programs, self._table = access, programs, table
        self._slots, self._fleet, self._router, self._accounting = slots, fleet, router, accounting
        self._upstream, self._metrics, self._queue_metrics = upstream, metrics, queue_metrics
        self._session_headers, self._limits, self._identity = session_headers, limits, identity
        self._now_ms, self._tracing = now_ms, tracing
        self._bodies = ByteBudget(limits.bodies_bytes)
        self._rates = TenantRates(access.limits, time.monotonic)
        self._running: set[Interruptible] = set()
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
        call = Call(ROUTES[exchange.path], exchange)
        span = self._tracing.start(call.route.path, exchange.headers) if self._tracing is not None else None
        call.span = span
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

    def _report(self, call: Call, status: int) -> None:
        ended = time.monotonic()
        self._metrics.ended(call.route.path, status, ended - call.started)
        if call.sent_at is not None:
            self._metrics.sent(call.sent_at - call.started - call.queued_seconds)
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
        if len(self._running) >= self._limits.calls:
            self._queue_metrics.refused("max_calls")
            raise ApiError(
                ErrorCode.CONTENDED,
                "Too many calls are running; try again.",
                param="max_calls",
                retry_after_seconds=1,
            )
        self._running.add(work)
        share = self._bodies.open()
        try:
            raw = await exchange.body(self._limits.body_bytes, self._limits.body_seconds, share)
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
            self._running.discard(work)
            await exchange.close()

    def _check_model(self, route: Route, model: str | None) -> None:
        if model is None:
            if route.needs_model:
                raise invalid("model is required.", param="model")
        elif self._fleet.has_models and not self._fleet.knows_model(model):
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"There is no model {shown(model)!r}.", param="model")

    async def _of_program(self, call: Call, program: Program, body: Body, work: Interruptible) -> None:
        if program.session is None:
            await self._attempts(call, program, body)
            return
        limits = self._access.limits(program.owner)
        entry = await self._programs.open(program.owner, program.session, most=limits.programs)
        self._table.arrived(program.id, self._now_ms())
        self.calls.add(program.id, entry.created_ms, work)
        try:
            await self._attempts(call, program, body)
        finally:
            self.calls.discard(program.id, work)
            self._table.departed(program.id, self._now_ms())

    async def _attempts(self, call: Call, program: Program, body: Body) -> None:
        """Tries an engine, and one more as long as the client has not got a byte."""
        ends_at = asyncio.get_running_loop().time() + self._limits.deadlines.total
        asked = Asked(body.model, short=True)
        if call.route.generates:
            asked = await self._router.asked(program, body.model, body.prompt, body.tokenize_request)
        tried: frozenset[str] = frozenset()
        failure: EngineFailed | None = None
        for _ in range(_ATTEMPTS):
            entry = self._programs.known(program)
            service_ms = entry.service_ms if entry is not None else 0.0
            began = time.monotonic()
            try:
                placement = await self._slots.take(program, asked, service_ms=service_ms, tried=tried, ends_at=ends_at)
            except NoEngine:
                if failure is None:
                    raise ApiError(
                        ErrorCode.NO_ENGINE, "No engine can take the call now.", retry_after_seconds=2
                    ) from None
                break
            finally:
                call.queued_seconds += time.monotonic() - began
            try:
                self._metrics.placed(placement.reason, again=failure is not None)
                call.placed(placement, self._context(call, program))
                await self._attempt(call, program, body, placement.engine, ends_at)
                return
            except EngineFailed as error:
                failure = error
                log.warning(
                    "attempt failed",
                    extra=fields(
                        request=call.request_id, call=call.id, engine=placement.engine.name, reason=str(error)
                    ),
                )
                if call.exchange.started or not error.retry:
                    break
                tried |= {placement.engine.name}
            finally:
                self._slots.release(program, placement.engine)
        assert failure is not None
        raise ApiError(failure.code, str(failure), retry_after_seconds=failure.retry_after_seconds)

    async def _attempt(self, call: Call, program: Program, body: Body, engine: Engine, ends_at: float) -> None:
        """One attempt on one engine, with its effects on the engine's health and on accounts."""
        exchange, context = call.exchange, call.context
        tokens = self._tokens(program.owner, body)
        attempt = Attempt(
            exchange,
            ends_at=ends_at,
            deadlines=self._limits.deadlines,
            answer_limit=self._limits.answer_bytes,
            needs_done=call.route.streams_end_with_done,
            tokens=tokens,
        )
        headers = header_rules.to_engine(
            exchange.headers,
            request_id=call.request_id,
            key=self._identity.engine_key,
            trace=call.span.carrier() if call.span is not None else (),
        )
        # Asked once: who charges the call is settled when it is sent.
        has_records = engine.has_records
        payload = body.with_context(
            context if has_records else None,
            isolated_for=program.owner if self._identity.isolate_prefix_cache else None,
        )
        started, reached = time.monotonic(), True
        call.sent_at = call.sent_at or started
        try:
            await attempt.run(self._upstream, engine.endpoint.url, payload, headers)
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
            call.first_byte_at = attempt.first_byte_at
            if tokens is not None and reached:
                self._rates.spend_tokens(program.owner, tokens.total)
            if reached and context is not None and program.session is not None and not has_records:
                self._accounting.estimate(
                    program.id,
                    context,
                    engine=engine.name,
                    ran_ms=(time.monotonic() - started) * 1000.0,
                    now_ms=self._now_ms(),
                )

    def _tokens(self, owner: str, body: Body) -> TokenCount | None:
        """Counts the call's tokens, if its tenant has a limit of them."""
        if self._access.limits(owner).tokens_per_minute is None:
            return None
        return TokenCount(estimated_tokens(body.prompt))

    def _context(self, call: Call, program: Program) -> ProgramContext | None:
        """What an engine is told of the program: its figures as they are now."""
        if not call.route.generates:
            return None
        entry = self._programs.known(program)
        if entry is None:
            return ProgramContext(
                program=program.id, call=call.id, thread=call.thread or "", replica=self._identity.replica
            )
        return ProgramContext(
            program=entry.engine_program,
            call=call.id,
            thread=call.thread or "",
            replica=self._identity.replica,
            service_ms=entry.service_ms,
            path_ms=entry.path_ms,
            wait_ms=entry.wait_ms,
        )
