"""A call's way over engines: a place on one, one attempt, and one more elsewhere if nothing has reached the client."""

import asyncio
import functools
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
from autellix_controller.errors import ApiError, ErrorCode, no_model
from autellix_controller.gateway import headers as header_rules
from autellix_controller.gateway.answers import EngineFailed
from autellix_controller.gateway.body import Body
from autellix_controller.gateway.call import Call
from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.rates import TenantRates
from autellix_controller.gateway.relay import Attempt, Deadlines
from autellix_controller.gateway.slots import Slots
from autellix_controller.gateway.upstream import Exhausted, NotConnected, Unreachable, Upstream, UpstreamFailed
from autellix_controller.gateway.usage import TokenCount
from autellix_controller.logs import fields
from autellix_controller.metrics import CallMetrics
from autellix_controller.routing.decide import NoEngine
from autellix_controller.routing.length import estimated_tokens
from autellix_controller.routing.router import Asked, Router
from autellix_controller.sessions.identity import Program
from autellix_controller.sessions.programs import Programs
from autellix_wire.context import ProgramContext

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 2


class Terms(msgspec.Struct, frozen=True):
    """On what terms engines are called."""

    replica: str
    isolate_prefix_cache: bool
    """Calls of one tenant never use prefixes that another one's have cached."""
    deadlines: Deadlines
    answer_bytes: int
    """Of an answer that is no stream."""


class Attempts:
    """Serves calls that were let in."""

    def __init__(
        self,
        *,
        access: Access,
        programs: Programs,
        slots: Slots,
        fleet: Fleet,
        router: Router,
        accounting: Accounting,
        upstream: Upstream,
        metrics: CallMetrics,
        rates: TenantRates,
        terms: Terms,
        timer: DeadlineTimer,
        now_ms: Callable[[], int],
    ) -> None:
        self._access, self._programs, self._slots, self._fleet = access, programs, slots, fleet
        self._router, self._accounting, self._upstream = router, accounting, upstream
        self._metrics, self._rates, self._terms, self._now_ms = metrics, rates, terms, now_ms
        self._timer = timer

    async def serve(self, call: Call, program: Program, body: Body) -> None:
        """Tries an engine, and one more as long as the client has not got a byte. Raises ApiError and ClientGone."""
        arrived = asyncio.get_running_loop().time() - (time.monotonic() - call.started)
        ends_at = arrived + self._terms.deadlines.total
        asked = Asked(body.model, short=True)
        if call.route.generates:
            asked = await self._router.asked(program, body.model, body.prompt, body.tokenize_request)
        try:
            await self._try(call, program, body, asked, ends_at)
        finally:
            if call.charge is not None:
                call.charge()

    async def _try(self, call: Call, program: Program, body: Body, asked: Asked, ends_at: float) -> None:
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
                    raise self._no_engine(body.model) from None
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

    def _no_engine(self, model: str | None) -> ApiError:
        if model is not None and self._fleet.lacks(model):
            # It was let in while no engine had told its models, or they have changed since.
            return no_model(model)
        return ApiError(ErrorCode.NO_ENGINE, "No engine can take the call now.", retry_after_seconds=2)

    async def _attempt(self, call: Call, program: Program, body: Body, engine: Engine, ends_at: float) -> None:
        """One attempt on one engine, with its effects on the engine's health and on accounts."""
        exchange, context = call.exchange, call.context
        tokens = self._tokens(program.owner, body)
        attempt = Attempt(
            exchange,
            ends_at=ends_at,
            timer=self._timer,
            deadlines=self._terms.deadlines,
            answer_limit=self._terms.answer_bytes,
            needs_done=call.route.streams_end_with_done,
            tokens=tokens,
        )
        headers = header_rules.to_engine(
            exchange.headers,
            request_id=call.request_id,
            trace=call.span.carrier() if call.span is not None else (),
        )
        # Asked once: who charges the call is settled when it is sent.
        has_records = engine.has_records
        started, reached = time.monotonic(), True
        call.is_sent(started)
        try:
            await attempt.run(
                self._upstream,
                engine.endpoint.url,
                # Not named here, or it would be held until the end of the answer.
                body.with_context(
                    context if has_records else None,
                    isolated_for=program.owner if self._terms.isolate_prefix_cache else None,
                ),
                headers,
            )
            self._fleet.saw(engine, Seen.ANSWERED)
        except Exhausted as error:
            reached = False
            raise ApiError(
                ErrorCode.CONTENDED,
                "The controller has no room for one more connection; try again.",
                param="open_files",
                retry_after_seconds=1,
            ) from error
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
            if reached:  # the attempt that ends the call replaces the one before, so that a call is charged once
                estimated = None if has_records or program.session is None else context
                ran_ms = (time.monotonic() - started) * 1000.0
                call.charge = functools.partial(self._charge, program, engine.name, estimated, tokens, ran_ms)

    def _charge(
        self, program: Program, engine: str, estimated: ProgramContext | None, tokens: TokenCount | None, ran_ms: float
    ) -> None:
        """Charges a call for the last of its attempts that an engine got: its tokens to the tenant, and, ``estimated``
        with the context that it brought, its time to the program; engines with records say that themselves."""
        if tokens is not None:
            self._rates.spend_tokens(program.owner, tokens.total)
        if estimated is not None:
            self._accounting.estimate(program.id, estimated, engine=engine, ran_ms=ran_ms, now_ms=self._now_ms())

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
                program=program.id, call=call.id, thread=call.thread or "", replica=self._terms.replica
            )
        return ProgramContext(
            program=entry.engine_program,
            call=call.id,
            thread=call.thread or "",
            replica=self._terms.replica,
            service_ms=entry.service_ms,
            path_ms=entry.path_ms,
            wait_ms=entry.wait_ms,
        )
