"""Routing: takes the snapshot, asks for the decision, and moves the pin in the process table."""

import logging
import time
from collections.abc import Callable

import msgspec

from autellix_controller.background import SingleFlight
from autellix_controller.engines.engine import Engine
from autellix_controller.engines.fleet import Fleet
from autellix_controller.engines.tokens import TokenCounter
from autellix_controller.logs import fields
from autellix_controller.routing.decide import Decision, NoEngine, RouteReason, Rules, Snapshot
from autellix_controller.routing.length import estimated_tokens, is_short
from autellix_controller.routing.policies import POLICIES, prefix_of
from autellix_controller.sessions.identity import Program
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import ProcessTable, TableUnavailable

log = logging.getLogger(__name__)


class Placement(msgspec.Struct, frozen=True):
    """Where a call goes, and why."""

    engine: Engine
    reason: RouteReason


class Asked(msgspec.Struct, frozen=True):
    """What routing knows of a call, besides its program."""

    model: str | None
    short: bool = False
    """It leaves the program's pin alone."""
    tokens: int = 0
    """Length of its prompt, about."""
    prefix: int = 0
    """A hash of the beginning of its prompt, if the policy looks at it."""


class Router:
    """Places calls on engines."""

    def __init__(
        self, fleet: Fleet, table: ProcessTable, tokens: TokenCounter, rules: Rules, *, policy: str = "autellix"
    ) -> None:
        """``policy`` is one of ``POLICIES``."""
        self._fleet, self._table, self._tokens, self._rules = fleet, table, tokens, rules
        self._policy_name, self._policy = policy, POLICIES[policy]
        self._pinning: SingleFlight[str, ProgramEntry] = SingleFlight()
        self._placed = 0
        self.pin_moves = 0
        """Pins set or moved by this replica since its start."""
        self.lengths = {"bytes": 0, "tokenizer": 0, "estimate": 0}
        """Prompts that were compared with a threshold, by what told their length."""

    async def asked(
        self, program: Program, model: str | None, prompt: bytes, tokenize_request: Callable[[], bytes | None]
    ) -> Asked:
        """What there is to know of a call of the program with that prompt.

        ``tokenize_request`` makes the prompt into what an engine's tokenizer takes; it is called only if bytes do not
        tell whether the call is short.
        """
        if self._policy_name == "prefix_hash":
            return Asked(model, prefix=prefix_of(model, prompt))
        if self._policy_name != "autellix":
            return Asked(model)
        threshold = self._rules.threshold_tokens
        if not threshold:
            return Asked(model, tokens=estimated_tokens(prompt))
        if program.session is None:
            # It has no pin that its short calls could leave alone: an estimate will do.
            tokenize_request = _nothing
        return await self._measured(model, prompt, threshold, tokenize_request)

    async def _measured(
        self, model: str | None, prompt: bytes, threshold: int, tokenize_request: Callable[[], bytes | None]
    ) -> Asked:
        tokens = estimated_tokens(prompt)
        short, told_by = is_short(prompt, threshold), "bytes"
        if short is None:
            request = tokenize_request()
            counted = await self._tokens.count(model, request) if request is not None else None
            told_by = "estimate" if counted is None else "tokenizer"
            tokens = tokens if counted is None else counted
            short = tokens <= threshold
        self.lengths[told_by] += 1
        return Asked(model, short=short, tokens=tokens)

    async def place(self, program: Program, asked: Asked, *, tried: frozenset[str]) -> Placement:
        """An engine for a call of the program. Raises NoEngine. ``tried`` are engines that already failed this call."""
        entry = self._table.get(program.id) if program.session is not None else None
        snapshot = Snapshot(
            program=program.id,
            engines=self._fleet.views(asked.model, time.monotonic()),
            pin=entry.engine if entry is not None else None,
            short=asked.short,
            tokens=asked.tokens,
            prefix=asked.prefix,
            turn=self._placed,
            tried=tried,
        )
        decision = self._policy(snapshot, self._rules)
        self._placed += 1
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
        again = self._policy(msgspec.structs.replace(snapshot, pin=entry.engine), self._rules)
        return Decision(again.engine, "pinned" if again.engine == entry.engine else "spilled", move_pin=False)

    async def _pin(self, program: str, engine: str, expected: str | None) -> ProgramEntry:
        entry = await self._table.pin(program, engine, expected=expected)
        if entry.engine == engine:
            self.pin_moves += 1
        return entry


def _nothing() -> None:
    return None
