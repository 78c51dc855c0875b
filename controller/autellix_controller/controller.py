"""One controller replica: its parts, wired together, started and stopped in order."""

import asyncio
import time
from types import TracebackType
from typing import Self

from autellix_controller import metrics, rest
from autellix_controller.access import Access, KeysFile
from autellix_controller.background import cancel, forever
from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.client import EngineClient, new_session
from autellix_controller.engines.discovery import Discovery, StaticDiscovery
from autellix_controller.engines.endpointslices import EndpointSliceDiscovery, KubernetesSlices
from autellix_controller.engines.fleet import Fleet
from autellix_controller.engines.keys import EngineKeys
from autellix_controller.engines.tokens import TokenCounter
from autellix_controller.gateway.attempts import Attempts, Terms
from autellix_controller.gateway.deadlines import DeadlineTimer
from autellix_controller.gateway.exchange import CLOSE, Message, Receive, Scope, Send
from autellix_controller.gateway.gateway import Gateway, Limits
from autellix_controller.gateway.keyed import KeyedUpstream
from autellix_controller.gateway.patience import Patience
from autellix_controller.gateway.rates import TenantRates
from autellix_controller.gateway.relay import Deadlines
from autellix_controller.gateway.routes import ROUTES
from autellix_controller.gateway.slots import Bounds, Slots
from autellix_controller.gateway.upstream import PooledUpstream
from autellix_controller.observed import Observed
from autellix_controller.rest import Readiness, TableState
from autellix_controller.routing.decide import Rules
from autellix_controller.routing.router import Router
from autellix_controller.sessions import identity
from autellix_controller.sessions.programs import Programs
from autellix_controller.settings import Settings
from autellix_controller.table.etcd import wall_clock_ms
from autellix_controller.table.factory import open_table


class Controller:
    """A replica as an ASGI application and an async context: inside the context it works.

    Make it inside the event loop that will run it.
    """

    def __init__(self, settings: Settings, *, keys: KeysFile | None, engine_keys: EngineKeys) -> None:
        access = keys.access if keys is not None else Access(None)
        registry = metrics.new_registry()
        self._files = [file for file in (keys.file if keys else None, engine_keys.file) if file is not None]
        self._http = new_session()
        self._upstream = PooledUpstream(connect_seconds=settings.connect_deadline_seconds)
        self._kubernetes = KubernetesSlices(*settings.kubernetes_service) if settings.kubernetes_service else None
        program_metrics = metrics.ProgramMetrics(registry)
        self.table = open_table(
            settings.table,
            settings.table_prefix,
            settings.replica,
            settings.session_timeout_seconds,
            access=settings.etcd_access,
            expired=program_metrics.ended,
        )
        self._accounting = Accounting(self.table, settings.replica)
        discovery: Discovery
        if self._kubernetes is not None:
            discovery = EndpointSliceDiscovery(self._kubernetes)
        else:
            discovery = StaticDiscovery(settings.engine)
        self.fleet = Fleet(
            discovery,
            self._accounting,
            lambda url: EngineClient(self._http, url, engine_keys),
            probe_seconds=settings.probe_seconds,
        )
        rules = Rules(
            settings.locality_threshold_tokens, settings.spill_ratio, settings.spill_calls, settings.spill_tokens
        )
        tokens = TokenCounter(self.fleet, lambda url: EngineClient(self._http, url, engine_keys))
        router = Router(self.fleet, self.table, tokens, rules, policy=settings.routing_policy)
        programs = Programs(
            self.table,
            now_ms=wall_clock_ms,
            tell_engines=self.fleet.end_program,
            count_end=program_metrics.ended,
        )
        queue_metrics = metrics.QueueMetrics(registry)
        self.slots = Slots(
            self.fleet,
            router,
            Bounds(
                settings.engine_calls,
                settings.queue_calls,
                Patience(room_seconds=settings.queue_seconds, engine_seconds=settings.hold_seconds),
            ),
            tenant_calls=lambda tenant: access.limits(tenant).calls,
            metrics=queue_metrics,
        )
        self._tracing = None
        if settings.trace_endpoint is not None:
            from autellix_controller.tracing import to_collector  # only here, since it needs an extra

            self._tracing = to_collector(settings.trace_endpoint, settings.replica)
        rates = TenantRates(access.limits, time.monotonic)
        call_metrics = metrics.CallMetrics(registry)
        timer = DeadlineTimer()
        attempts = Attempts(
            access=access,
            programs=programs,
            slots=self.slots,
            fleet=self.fleet,
            router=router,
            accounting=self._accounting,
            upstream=KeyedUpstream(self._upstream, engine_keys),
            metrics=call_metrics,
            rates=rates,
            terms=Terms(
                replica=settings.replica,
                isolate_prefix_cache=settings.isolate_prefix_cache,
                deadlines=Deadlines(
                    first_byte=settings.first_byte_deadline_seconds,
                    idle=settings.idle_deadline_seconds,
                    total=settings.total_deadline_seconds,
                ),
                answer_bytes=settings.answer_limit_bytes,
            ),
            timer=timer,
            now_ms=wall_clock_ms,
        )
        self.gateway = Gateway(
            access=access,
            programs=programs,
            table=self.table,
            fleet=self.fleet,
            attempts=attempts,
            rates=rates,
            metrics=call_metrics,
            queue_metrics=queue_metrics,
            session_headers=identity.SessionHeaders(settings.session_headers),
            limits=Limits(
                calls=settings.max_calls,
                body_bytes=settings.body_limit_bytes,
                bodies_bytes=settings.bodies_limit_bytes,
                body_seconds=settings.body_deadline_seconds,
            ),
            timer=timer,
            now_ms=wall_clock_ms,
            tracing=self._tracing,
        )
        registry.register(
            metrics.StateCollector(
                fleet=self.fleet,
                table=self.table,
                router=router,
                accounting=self._accounting,
                running=lambda: self.gateway.running,
                queued=lambda: self.slots.waiting,
                held=lambda: self.slots.held,
                body_bytes=lambda: self.gateway.body_bytes,
            )
        )
        self.rest = rest.application(
            access=access,
            programs=programs,
            cancel=self.gateway.calls.end_cancelled,
            fleet=self.fleet,
            registry=registry,
            readiness=self.readiness,
            body_seconds=settings.body_deadline_seconds,
        )
        self.observed = Observed(self.rest, metrics.RequestMetrics(registry))
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.table.start()
        await self.fleet.start()
        self._tasks.append(asyncio.create_task(forever("cancelled calls", self.gateway.calls.follow)))
        self._tasks += [asyncio.create_task(forever(file.what, file.follow)) for file in self._files]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel(*self._tasks)
        await self.fleet.stop()
        await self.table.close()
        await self._http.close()
        self._upstream.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        if self._kubernetes is not None:
            await self._kubernetes.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: the gateway's paths go straight to it, everything else through FastAPI."""
        if scope["type"] == "http" and scope["path"] in ROUTES:
            await self.gateway(scope, receive, send)
            return
        if scope["type"] == "http" and self.gateway.leaving:
            send = _with_header(send, *CLOSE)
        await self.observed(scope, receive, send)

    def readiness(self) -> Readiness:
        """Whether this replica should get traffic."""
        table = self.table.health()
        reasons = []
        if self.gateway.leaving:
            reasons.append("the replica is stopping")
        if not table.loaded:
            reasons.append(f"the process table is not loaded yet{': ' if table.detail else ''}{table.detail}")
        if not self.fleet.known:
            reasons.append("the engines are not known yet")
        degraded = [f"process table: {table.detail}"] if table.detail and table.loaded else []
        state = TableState(table.loaded, table.connected, table.cause or table.detail)
        return Readiness(not reasons, reasons, degraded + self.fleet.troubles(), state)

    def leave(self) -> None:
        """Stops being ready; calls are served as before, each as the last one of its connection."""
        self.gateway.leaving = True

    def interrupt_calls(self) -> None:
        """Ends all running calls with an error."""
        self.gateway.interrupt_all()


def _with_header(send: Send, name: bytes, value: bytes) -> Send:
    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (name, value)]
        await send(message)

    return send_with_header
