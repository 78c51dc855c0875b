"""A bounded view of the decision core for people: plain values that serialise as JSON."""

import itertools
from typing import Final

from autellix_engine.policy.calls import Call
from autellix_engine.policy.core import Core
from autellix_engine.policy.programs import Program

#: Calls and programs that a snapshot lists at most, of each kind.
LIMIT: Final = 20


def snapshot(core: Core, now: float, limit: int = LIMIT) -> dict[str, object]:
    """Settings, sizes, counts, and at most ``limit`` running calls, waiting calls and programs.

    Waiting calls are listed from the front of the queue, running ones from those that would give way first, and
    programs in the order in which their first calls came. What it costs depends on ``limit``, not on their number.
    """
    return {
        "settings": core.settings.as_json,
        "queue_bounds_ms": [round(bound, 3) for bound in core.bounds],
        "waiting_by_level": list(core.waiting_by_level()),
        "running_by_level": list(core.running_by_level()),
        "programs": len(core.programs),
        "programs_expired": core.programs.expired,
        "programs_evicted": core.programs.evicted,
        "counts": dict(core.counts),
        "running": [_call(call, now) for call in itertools.islice(core.running_reversed(), limit)],
        "waiting": [_call(call, now) for call in itertools.islice(core.waiting(), limit)],
        "active_programs": [_program(program) for program in itertools.islice(core.programs.active(), limit)],
    }


def _call(call: Call, now: float) -> dict[str, object]:
    pending = now - call.waiting_since if call.waiting_since is not None else 0.0
    return {
        "key": call.key,
        "program": call.program.id,
        "thread": call.thread,
        "level": call.level,
        "promoted": call.promoted,
        "ready": call.ready,
        "service_ms": round(call.total_service, 3),
        "wait_ms": round(call.total_wait + pending, 3),
        "preemptions": call.preemptions,
        "promotions": call.promotions,
    }


def _program(program: Program) -> dict[str, object]:
    return {
        "id": program.id,
        "active": program.active,
        "calls": program.calls,
        "service_ms": round(program.service_ms, 3),
        "path_ms": round(program.path_ms, 3),
        "wait_ms": round(program.wait_ms, 3),
    }
