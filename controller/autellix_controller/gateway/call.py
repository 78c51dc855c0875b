"""One call on its way through the gateway: what is known of it, for receipt, metrics, log and trace."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from autellix_controller.gateway.exchange import Exchange
from autellix_controller.gateway.routes import Route
from autellix_controller.gateway.tracing import Span
from autellix_controller.routing.router import Placement
from autellix_controller.sessions import identity
from autellix_controller.sessions.identity import Program
from autellix_wire import headers as names
from autellix_wire.context import ProgramContext

_PROGRAM: Final = names.PROGRAM.encode()
_ENGINE: Final = names.ENGINE.encode()
_ROUTE: Final = names.ROUTE.encode()
_SERVICE: Final = names.SERVICE.encode()
_LEVEL: Final = names.LEVEL.encode()
_ACCOUNTING: Final = names.ACCOUNTING.encode()
_REQUEST_ID: Final = names.REQUEST_ID.encode()


class Call:
    """Facts of one call, gathered on its way."""

    def __init__(self, route: Route, exchange: Exchange) -> None:
        self.route, self.exchange = route, exchange
        self.id = identity.new_call()
        self.request_id = identity.request_id(exchange.header(_REQUEST_ID), self.id)
        exchange.receipt.append((_REQUEST_ID, self.request_id.encode()))
        self.thread: str | None = None
        self.program: Program | None = None
        self.placement: Placement | None = None
        self.context: ProgramContext | None = None
        self._receipt: tuple[tuple[bytes, bytes], ...] = ()
        self.started = time.monotonic()
        self.added_seconds: float | None = None
        """From its arrival to its first sending to an engine, without the time in the queue."""
        self.first_byte_at: float | None = None
        self.queued_seconds = 0.0
        """Waiting for places on engines."""
        self.charge: Callable[[], None] | None = None
        """Charges it at its end for the last attempt that an engine got."""
        self.span: Span | None = None
        self.error = ""

    def belongs_to(self, program: Program) -> None:
        """Notes the program, for the receipt as well."""
        self.program = program
        self.exchange.receipt.append((_PROGRAM, program.id.encode()))
        self._receipt = tuple(self.exchange.receipt)

    def is_sent(self, now: float) -> None:
        """Notes that an attempt is sent; ``now`` is monotonic seconds."""
        if self.added_seconds is None:
            self.added_seconds = now - self.started - self.queued_seconds

    def placed(self, placement: Placement, context: ProgramContext | None) -> None:
        """Notes where an attempt goes, why, and what the call brings along."""
        self.placement, self.context = placement, context
        engine = placement.engine
        receipt = [*self._receipt, (_ENGINE, engine.name.encode()), (_ROUTE, placement.reason.encode())]
        if context is not None:
            receipt.append((_SERVICE, b"%.3f" % context.service_ms))
            receipt.append((_ACCOUNTING, b"records" if engine.has_records else b"estimated"))
            if (level := engine.level(context)) is not None:
                receipt.append((_LEVEL, b"%d" % level))
        self.exchange.receipt = receipt

    def receipts(self) -> Iterator[tuple[str, str | int | float]]:
        """The same facts as attributes of a span."""
        if self.program is not None:
            yield "autellix.program", self.program.id
        if self.placement is not None:
            yield "autellix.engine", self.placement.engine.name
            yield "autellix.route", self.placement.reason
            if self.context is not None:
                yield "autellix.service_ms", self.context.service_ms
                yield "autellix.accounting", "records" if self.placement.engine.has_records else "estimated"
                if (level := self.placement.engine.level(self.context)) is not None:
                    yield "autellix.level", level
