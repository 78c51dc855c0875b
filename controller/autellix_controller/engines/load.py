"""How much an engine is used, seen from one of several controller replicas."""

from typing import Final

import msgspec

from autellix_wire.records import HEARTBEAT_SECONDS

#: A load report older than this says nothing about now.
STALE_SECONDS: Final = 5 * HEARTBEAT_SECONDS


class ReportedLoad(msgspec.Struct, frozen=True):
    """The newest load report of an engine, and what we had there when it came."""

    calls: int
    """Calls running and waiting on the engine, whoever sent them."""
    own: int
    """Of these, at most so many were ours."""
    at: float
    """When it came, on the monotonic clock, seconds."""


def used(own: int, reported: ReportedLoad | None, now: float) -> int:
    """Calls on an engine: ours, known exactly, and those of others by its last report.

    Others' calls are what the report counted beyond our own at that moment, so our calls are never counted twice, and
    calls we sent since are counted at once. Without a fresh report others count as none.
    """
    if reported is None or now - reported.at > STALE_SECONDS:
        return own
    return own + max(0, reported.calls - reported.own)
