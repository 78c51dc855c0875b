"""The batch: which waiting calls get a slot now and which running calls give way to them."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autellix_engine.policy.calls import Call

#: Whether a call fits once these running calls have given way.
Fits = Callable[[Call, Sequence[Call]], bool]


def always_fits(call: Call, victims: Sequence[Call]) -> bool:
    """For callers to whom only slots are scarce."""
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision. The caller carries it out by ``preempt`` and ``start``, as far as it can."""

    admissions: tuple[Call, ...]
    """Waiting calls that get a slot, in this order."""
    victims: tuple[Call, ...]
    """Running calls that give way to them."""


def fill_batch(
    waiting: Iterable[Call], last_to_stay: Iterable[Call], *, free_slots: int, most_victims: int, fits: Fits
) -> Plan:
    """Algorithm 1, batch: calls are taken in queue order while they fit; the first that does not fit ends it.

    ``waiting`` is in queue order, ``last_to_stay`` are the running calls against it: worst level and latest first. A
    call for which there is no room may have it from running calls of a strictly worse level, as long as they do not
    keep their slot and no more than ``most_victims`` give way; if that is not enough for it, nobody gives way to it.
    """
    admissions: list[Call] = []
    victims: list[Call] = []
    candidates = itertools.islice((call for call in last_to_stay if not call.keeps_slot), most_victims)
    for call in waiting:
        if not call.ready:
            continue
        leaving: list[Call] = []
        while free_slots + len(leaving) <= 0 or not fits(call, [*victims, *leaving]):
            candidate = next(candidates, None)
            if candidate is None or candidate.level <= call.level:
                return Plan(tuple(admissions), tuple(victims))
            leaving.append(candidate)
        victims += leaving
        free_slots += len(leaving) - 1
        admissions.append(call)
    return Plan(tuple(admissions), tuple(victims))
