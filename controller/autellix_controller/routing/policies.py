"""The policies that can be selected, each a pure function of a snapshot.

``autellix`` is the paper's Algorithm 2 with a way out (``decide``). The others are what it is measured against, and of
use where nothing is gained by keeping a program's calls together. They set and move no pins.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from autellix_controller.routing.decide import Decision, EngineView, NoEngine, Rules, Snapshot, decide, least_used

Policy = Callable[[Snapshot, Rules], Decision]
"""Chooses an engine for a call. Raises NoEngine if there is none that has not failed this call already."""

#: Bytes of a prompt that ``prefix_hash`` looks at.
PREFIX_BYTES: Final = 1024
#: How much more than the mean an engine may have under ``prefix_hash``.
_PREFIX_BOUND: Final = 1.25


def _candidates(snapshot: Snapshot) -> Sequence[EngineView]:
    candidates = [engine for engine in snapshot.engines if engine.name not in snapshot.tried]
    if not candidates:
        raise NoEngine
    return candidates


def fewest_calls(snapshot: Snapshot, rules: Rules) -> Decision:
    """The least used engine, whatever the program."""
    return Decision(least_used(snapshot.program, _candidates(snapshot)).name, "least_used", move_pin=False)


def round_robin(snapshot: Snapshot, rules: Rules) -> Decision:
    """One engine after another, in the order of their names."""
    candidates = sorted(_candidates(snapshot), key=lambda engine: engine.name)
    return Decision(candidates[snapshot.turn % len(candidates)].name, "round_robin", move_pin=False)


def prefix_hash(snapshot: Snapshot, rules: Rules) -> Decision:
    """Calls whose prompts begin alike go to one engine, as long as it has at most 1.25 times the mean.

    Rendezvous hashing, so an engine that comes or goes moves only its own share; with the bound of "Consistent Hashing
    with Bounded Loads" (Mirrokni, Thorup, Zadimoghaddam, 2018).
    """
    candidates = _candidates(snapshot)
    total = sum(engine.used for engine in candidates) + 1
    bound = math.ceil(_PREFIX_BOUND * total / len(candidates))
    free = [engine for engine in candidates if engine.used < bound]
    chosen = min(free, key=lambda engine: _draw(snapshot.prefix, engine.name))
    return Decision(chosen.name, "prefix", move_pin=False)


def _draw(prefix: int, engine: str) -> bytes:
    return hashlib.blake2b(engine.encode(), key=prefix.to_bytes(8, "big"), digest_size=8).digest()


def prefix_of(model: str | None, prompt: bytes) -> int:
    """What ``prefix_hash`` knows a prompt by: 64 bits of the model and of the first ``PREFIX_BYTES``."""
    digest = hashlib.blake2b(prompt[:PREFIX_BYTES], digest_size=8, key=(model or "").encode()[:64])
    return int.from_bytes(digest.digest(), "big")


POLICIES: Final[Mapping[str, Policy]] = {
    "autellix": decide,
    "least_used": fewest_calls,
    "round_robin": round_robin,
    "prefix_hash": prefix_hash,
}
"""By the name that settings give."""
