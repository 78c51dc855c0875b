"""What an engine reports back: one record for each call that ended, and periodic load reports, on one resumable
stream.

The stream (``GET /autellix/v1/records?after=<incarnation>:<seq>``) is newline-delimited JSON, one message a line:

1. The first line is always ``Hello``.
2. If messages after the reader's cursor are gone (the ring overran, or the engine restarted), a ``Gap`` comes next.
3. Then ``CallRecord`` lines in order of ``seq`` without holes, mixed with ``LoadReport`` lines, which also serve as
heartbeat
   (one at least every ``HEARTBEAT_SECONDS``).

Delivery is at least once. That is enough, because a record carries *absolute* values: the program's path and wait
merge by
maximum, and the totals are one monotone counter for each engine incarnation. Repeats and reordering change nothing.
"""

from typing import Final, Literal

import msgspec

HEARTBEAT_SECONDS: Final = 1.0
RECORDS_PATH: Final = "/autellix/v1/records"
STATE_PATH: Final = "/autellix/v1/state"
PROGRAMS_PATH: Final = "/autellix/v1/programs"

Outcome = Literal["finished", "aborted", "failed"]


class ProgramTotals(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one engine incarnation has done for a program since it started: a counter that only grows.

    Held by the hundred thousand; like all that is frozen through and through it cannot be part of a cycle, so the
    garbage collector need not look at it.
    """

    service_ms: float = 0.0
    calls: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, tag="call", tag_field="type"):
    """One call that ended, and the program's absolute figures after it."""

    seq: int
    """Position on this incarnation's stream, from 1, without holes between records."""
    engine: str
    """Name of the engine (its pod)."""
    incarnation: str
    """This start of the engine: a new one after every restart."""
    program: str
    call: str
    thread: str = ""
    replica: str = ""
    outcome: Outcome
    service_ms: float
    """Executor time charged to this call, prefill included."""
    wait_ms: float
    """Time this call was ready and not running."""
    preemptions: int = 0
    promotions: int = 0
    level: int = 0
    """Level of the queue in which the call ended, 0 is the best."""
    swapped_bytes: int = 0
    """Bytes of its KV cache moved between device and host memory, both directions, as planned until it ended."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were found computed when it first ran, on the device or in host memory."""
    host_tokens: int = 0
    """Those of them that came from host memory."""
    recomputed_tokens: int = 0
    """Tokens computed again after preemptions."""
    generated_tokens: int = 0
    path_ms: float
    """The program's longest path after this call; merges by maximum."""
    program_wait_ms: float
    """The program's accumulated wait after this call; merges by maximum."""
    totals: ProgramTotals
    """The program's totals on this incarnation after this call; replaces smaller ones of the same incarnation."""


class LoadReport(msgspec.Struct, frozen=True, kw_only=True, tag="load", tag_field="type"):
    """How busy the engine is now."""

    engine: str
    incarnation: str
    running: int
    waiting: int
    waiting_by_level: tuple[int, ...] = ()
    tokens_in_flight: int = 0
    """Prompt and generated tokens of the running calls."""
    kv_usage_percent: float = 0.0
    dropped_records: int = 0
    """Records lost between scheduler and stream since the start of this incarnation."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello", tag_field="type"):
    """First line of every stream."""

    engine: str
    incarnation: str
    policy: str
    next_seq: int
    """Sequence number that the next record will have."""


class Gap(msgspec.Struct, frozen=True, kw_only=True, tag="gap", tag_field="type"):
    """Records that the reader asked for and will not get.

    With ``restart`` they are of the former incarnation, and how many there were is unknown: ``last`` is ``first`` - 1.
    """

    reason: Literal["overrun", "restart", "dropped"]
    first: int
    last: int


Message = CallRecord | LoadReport | Hello | Gap

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """One line of the stream, newline included."""
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Reads one line. Raises msgspec.DecodeError or msgspec.ValidationError if it is not a message."""
    return _decoder.decode(line)
