"""A program's entry in the process table, and how two views of it merge."""

import hashlib
from typing import Final, Literal

import msgspec

from autellix_wire.records import CallRecord, ProgramTotals

SCHEMA_VERSION: Final = 1

State = Literal["active", "ended"]


class ProgramEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the table knows about one program. Durations are milliseconds, times Unix milliseconds."""

    schema: int = SCHEMA_VERSION
    id: str
    owner: str
    """Name of the API key (tenant) that opened the program; never the key itself."""
    session: str
    """The name the caller gave it, or the one we made."""
    state: State = "active"
    engine: str | None = None
    """The pin: engine that holds the program's KV cache. Changes by compare-and-swap only."""
    path_ms: float = 0.0
    wait_ms: float = 0.0
    totals: dict[str, ProgramTotals] = {}
    """By engine incarnation. Each is a counter that only grows."""
    created_ms: int = 0
    last_arrival_ms: int = 0
    last_completion_ms: int = 0

    @property
    def service_ms(self) -> float:
        """The service PLAS orders by: the sum over all engine incarnations."""
        return sum(t.service_ms for t in self.totals.values())

    @property
    def calls(self) -> int:
        """Calls that ended, over all engine incarnations."""
        return sum(t.calls for t in self.totals.values())


def program_id(owner: str, session: str) -> str:
    """The table's id for a caller's session: the same name under another key is another program.

    160 bits of SHA-256 over owner and session, length-prefixed so that no two pairs meet; 40 hexadecimal digits.
    """
    return hashlib.sha256(f"{len(owner)}:{owner}{session}".encode()).hexdigest()[:40]


def _merge_totals(a: ProgramTotals, b: ProgramTotals) -> ProgramTotals:
    return ProgramTotals(**{name: max(getattr(a, name), getattr(b, name)) for name in ProgramTotals.__struct_fields__})


def merge(a: ProgramEntry, b: ProgramEntry) -> ProgramEntry:
    """Joins the monotone figures of two views of one program; pin, state and identity are taken from ``a``.

    Commutative, associative and idempotent in the figures, which is why records may repeat and arrive in any order.
    """
    totals = dict(a.totals)
    for incarnation, theirs in b.totals.items():
        totals[incarnation] = _merge_totals(totals[incarnation], theirs) if incarnation in totals else theirs
    return msgspec.structs.replace(
        a,
        path_ms=max(a.path_ms, b.path_ms),
        wait_ms=max(a.wait_ms, b.wait_ms),
        totals=totals,
        last_arrival_ms=max(a.last_arrival_ms, b.last_arrival_ms),
        last_completion_ms=max(a.last_completion_ms, b.last_completion_ms),
    )


def with_record(entry: ProgramEntry, record: CallRecord, now_ms: int) -> ProgramEntry:
    """The entry after a call record."""
    return merge(
        entry,
        msgspec.structs.replace(
            entry,
            path_ms=record.path_ms,
            wait_ms=record.program_wait_ms,
            totals={record.incarnation: record.totals},
            last_completion_ms=now_ms,
        ),
    )
