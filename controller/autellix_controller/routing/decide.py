"""Algorithm 2 with a way out: which engine gets a call, as a pure function of a snapshot.

Short calls go to the least used engine. Long calls go to the engine their program is pinned to; a program without a
usable pin is pinned to the least used engine.

The way out weighs the extra wait against the cost of computing the prompt anew where no cache has it. A pin is left,
and the program moves, when the calls that the pinned engine has ahead of the least used one are more than
``spill_calls`` and one for every ``spill_tokens`` of the prompt. The rule has its own hysteresis: right after a move
the new engine would have to get as many calls ahead before the program moves again.

While engines are replaced by those of a new revision, a program that needs an engine gets one that stays, if that has
few more calls than the least used of all: on one that is about to go it would only have to move once more.
"""

import typing
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from autellix_controller.rendezvous import draw

RouteReason = Literal["short", "new", "pinned", "spilled", "only", "least_used", "round_robin", "prefix"]
ROUTE_REASONS: Final[tuple[RouteReason, ...]] = typing.get_args(RouteReason)


class NoEngine(Exception):
    """No engine can take the call now."""


class Rules(msgspec.Struct, frozen=True):
    """The settings of routing."""

    threshold_tokens: int = 0
    """Calls of at most so many tokens are short; 0: none is, every call follows its program."""
    spill_ratio: float = 1.5
    spill_calls: int = 8
    spill_tokens: int = 4096
    """Tokens of a prompt whose computation costs as much as one call ahead; half a second on one A100 and 8B."""


class EngineView(msgspec.Struct, frozen=True):
    """An engine that may be chosen: it serves the model and takes new calls."""

    name: str
    used: int
    """Calls on it, ours and others'."""
    outdated: bool = False
    """It is of an older revision, so it is about to be replaced."""


class Snapshot(msgspec.Struct, frozen=True):
    """All that a decision depends on."""

    program: str
    engines: Sequence[EngineView]
    pin: str | None = None
    short: bool = False
    tokens: int = 0
    """Length of the prompt, about: what is computed anew if the call leaves its pin."""
    prefix: int = 0
    """A hash of the beginning of the prompt; only some policies look at it."""
    turn: int = 0
    """Calls that this replica placed before."""
    tried: frozenset[str] = frozenset()
    """Engines that already failed this very call."""


class Decision(msgspec.Struct, frozen=True):
    """Where the call goes, why, and whether the program's pin should follow."""

    engine: str
    reason: RouteReason
    move_pin: bool


def least_used(program: str, engines: Sequence[EngineView]) -> EngineView:
    """The engine with the fewest calls. Among equals a hash of program and engine decides (rendezvous hashing): it
    spreads programs over an idle cluster, and replicas that decide at the same time agree."""
    fewest = min([e.used for e in engines])
    equals = [e for e in engines if e.used == fewest]
    return equals[0] if len(equals) == 1 else min(equals, key=lambda e: draw(program, e.name))


def lasting(program: str, engines: Sequence[EngineView], rules: Rules) -> EngineView:
    """The engine for a program that needs one: the least used, or the least used of those that are not about to go.

    The latter may be ahead by half of ``spill_calls``. The other half is left as hysteresis: the program's next call
    finds its pin within bounds.
    """
    best = least_used(program, engines)
    staying = [engine for engine in engines if not engine.outdated]
    if not best.outdated or not staying:
        return best
    chosen = least_used(program, staying)
    return chosen if chosen.used <= best.used + rules.spill_calls // 2 else best


def decide(snapshot: Snapshot, rules: Rules) -> Decision:
    """Chooses an engine. Raises NoEngine if there is none that has not failed this call already."""
    candidates = [e for e in snapshot.engines if e.name not in snapshot.tried]
    if not candidates:
        raise NoEngine
    if len(snapshot.engines) == 1:
        only = candidates[0].name
        return Decision(only, "only", move_pin=not snapshot.short and snapshot.pin != only)
    pinned = next((e for e in snapshot.engines if e.name == snapshot.pin), None)
    if pinned is not None and not snapshot.short and pinned.name not in snapshot.tried:
        fewest = min([e.used for e in candidates])
        if pinned.used <= rules.spill_ratio * fewest + rules.spill_calls + snapshot.tokens // rules.spill_tokens:
            return Decision(pinned.name, "pinned", move_pin=False)
    if snapshot.short:
        return Decision(least_used(snapshot.program, candidates).name, "short", move_pin=False)
    if pinned is None:
        return Decision(lasting(snapshot.program, candidates, rules).name, "new", move_pin=True)
    # A pin that failed this call stands all the same: one failure is no reason to give up its warm cache.
    best = least_used(snapshot.program, candidates).name
    return Decision(best, "spilled", move_pin=pinned.name not in snapshot.tried)
