"""Routing: takes the snapshot, asks for the decision, and moves the pin in the process table."""

import logging
import time

import msgspec

from autellix_controller.background import SingleFlight
from autellix_controller.engines.engine import Engine
from autellix_controller.engines.fleet import Fleet
from autellix_controller.logs import fields
from autellix_controller.routing.decide import Decision, NoEngine, RouteReason, Rules, Snapshot, decide
from autellix_controller.routing.length import is_short
from autellix_controller.sessions.identity import Program
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import ProcessTable, TableUnavailable

log = logging.getLogger(__name__)


class Placement(msgspec.Struct, frozen=True):
    """Where a call goes, and why."""

    engine: Engine
    reason: RouteReason


class Router:
    """Places calls on engines."""

    def __init__(self, fleet: Fleet, table: ProcessTable, rules: Rules) -> None:
        self._fleet, self._table, self._rules = fleet, table, rules
        self._pinning: SingleFlight[str, ProgramEntry] = SingleFlight()
        self.pin_moves = 0
        """Pins set or moved by this replica since its start."""

    def is_short(self, prompt: bytes) -> bool:
        """Whether a call with that prompt may go to any engine."""
        return is_short(prompt, self._rules.threshold_tokens)

    async def place(self, program: Program, model: str | None, *, short: bool, tried: frozenset[str]) -> Placement:
        """An engine for a call of the program. Raises NoEngine.

        ``short`` calls leave the pin alone, ``tried`` are engines that already failed this call.
        """
        entry = self._table.get(program.id) if program.session is not None else None
        snapshot = Snapshot(
            program=program.id,
            engines=self._fleet.views(model, time.monotonic()),
            pin=entry.engine if entry is not None else None,
            short=short,
            tried=tried,
        )
        decision = decide(snapshot, self._rules)
        if decision.move_pin and entry is not None:
            decision = await self._move_pin(snapshot, decision)
        engine = self._fleet.get(decision.engine)
        if engine is None:  # it left while the pin was being moved
            raise NoEngine
        return Placement(engine, decision.reason)

    async def _move_pin(self, snapshot: Snapshot, decision: Decision) -> Decision:
        """Moves the pin by compare-and-swap. If another call was quicker, its pin counts for this call as well."""
        program = snapshot.program
        try:
            entry = await self._pinning.run(program, lambda: self._pin(program, decision.engine, snapshot.pin))
        except TableUnavailable as error:
            log.warning("pin not moved", extra=fields(program=program, engine=decision.engine, reason=str(error)))
            return decision
        except KeyError:  # ended meanwhile: the call goes on without a pin
            return decision
        if entry.engine == decision.engine:
            return decision
        again = decide(msgspec.structs.replace(snapshot, pin=entry.engine), self._rules)
        return Decision(again.engine, "pinned" if again.engine == entry.engine else "spilled", move_pin=False)

    async def _pin(self, program: str, engine: str, expected: str | None) -> ProgramEntry:
        entry = await self._table.pin(program, engine, expected=expected)
        if entry.engine == engine:
            self.pin_moves += 1
        return entry
