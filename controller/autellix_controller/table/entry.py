"""A program's entry in the process table, and how two views of it merge."""

import functools
import hashlib
from typing import Final, Literal

import msgspec

from autellix_wire.records import CallRecord, ProgramTotals

SCHEMA_VERSION: Final = 1

State = Literal["active", "ended"]

_LIFE_SEPARATOR: Final = "."


class ProgramEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the table knows about one program. Durations are milliseconds, times Unix milliseconds.

    Never changed, ``totals`` included, so the garbage collector need not look at it: a full collection of 100,000
    programs would stop the replica for a good part of a second.
    """

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
    """Start of the present life; an ended program that is opened again starts a later one."""
    cancelled_ms: int = 0
    """Start of the newest life whose running calls were to be cancelled at its end; 0: none was."""
    last_arrival_ms: int = 0
    last_completion_ms: int = 0

    @property
    def service_ms(self) -> float:
        """The service PLAS orders by: the sum over all engine incarnations."""
        return sum(t.service_ms for t in self.totals.values())

    @property
    def engine_program(self) -> str:
        """The name under which engines know the program: its id and the start of its present life.

        A session that is opened again after it ended is another program to every engine, so what an engine still
        remembers or reports of the former life is never charged to the new one. Goes into
        ``ProgramContext.program`` and into the path of ``DELETE /autellix/v1/programs/{id}``.
        """
        return f"{self.id}{_LIFE_SEPARATOR}{self.created_ms}"

    @property
    def last_activity_ms(self) -> int:
        """When the program was last heard of."""
        return max(self.created_ms, self.last_arrival_ms, self.last_completion_ms)

    @property
    def calls(self) -> int:
        """Calls that ended, over all engine incarnations."""
        return sum(t.calls for t in self.totals.values())


@functools.lru_cache(maxsize=16_384)
def program_id(owner: str, session: str) -> str:
    """The table's id for a caller's session: the same name under another key is another program.

    160 bits of SHA-256 over owner and session, length-prefixed so that no two pairs meet; 40 hexadecimal digits.
    """
    return hashlib.sha256(f"{len(owner)}:{owner}{session}".encode()).hexdigest()[:40]


def split_engine_program(name: str) -> tuple[str, int | None]:
    """The id and the start of the life that an ``engine_program`` names.

    A plain id names no life (None): it means whichever life is the present one.
    """
    program, _, life = name.partition(_LIFE_SEPARATOR)
    return program, int(life) if life.isdecimal() else None


def belongs(entry: ProgramEntry, life: int | None) -> bool:
    """Whether a record of a call of that life is charged to the entry's present life.

    Later starts belong to it as well: they come from replicas that opened the program while they could not see the
    store, before the two entries were joined under the earlier start.
    """
    return life is None or life >= entry.created_ms


def tombstone(entry: ProgramEntry, *, cancel: bool = False) -> ProgramEntry:
    """What remains of a program that ended: its identity and its life, no figures and no pin.

    ``cancel``: its running calls are to end as well, on whichever replica they are.
    """
    cancelled_ms = entry.created_ms if cancel else entry.cancelled_ms
    return msgspec.structs.replace(
        entry, state="ended", engine=None, path_ms=0.0, wait_ms=0.0, totals={}, cancelled_ms=cancelled_ms
    )


def next_life(former: ProgramEntry | None, fresh: ProgramEntry) -> ProgramEntry:
    """``fresh`` as the life after ``former``: it starts strictly later, whatever the clocks of two replicas say."""
    if former is None:
        return fresh
    created_ms = max(fresh.created_ms, former.created_ms + 1)
    return msgspec.structs.replace(fresh, created_ms=created_ms, cancelled_ms=former.cancelled_ms)


def _merge_totals(a: ProgramTotals, b: ProgramTotals) -> ProgramTotals:
    if (
        b.service_ms >= a.service_ms
        and b.calls >= a.calls
        and b.prompt_tokens >= a.prompt_tokens
        and b.generated_tokens >= a.generated_tokens
    ):
        return b  # nearly always: records come in order
    return ProgramTotals(
        service_ms=max(a.service_ms, b.service_ms),
        calls=max(a.calls, b.calls),
        prompt_tokens=max(a.prompt_tokens, b.prompt_tokens),
        generated_tokens=max(a.generated_tokens, b.generated_tokens),
    )


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
    """The entry after a call record: ``merge`` with what the record says."""
    known = entry.totals.get(record.incarnation)
    totals = record.totals if known is None else _merge_totals(known, record.totals)
    return msgspec.structs.replace(
        entry,
        path_ms=max(entry.path_ms, record.path_ms),
        wait_ms=max(entry.wait_ms, record.program_wait_ms),
        totals={**entry.totals, record.incarnation: totals},
        last_completion_ms=max(entry.last_completion_ms, now_ms),
    )
