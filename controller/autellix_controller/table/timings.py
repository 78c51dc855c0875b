"""How long the etcd table waits for what. Production uses the defaults; tests shorten them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """All in seconds."""

    call: float = 1.0
    """Deadline of one transaction, read or lease call: it may stand between a request and its engine."""
    list_page: float = 10.0
    """Deadline of one page of a listing."""
    linger: float = 0.02
    """How long accounting gathers before it is written: more gathers larger transactions, and is lost in a crash."""
    retry: float = 1.0
    """After a failed write, how long opens and pins do not try; also the longest pause of the writer."""
    progress: float = 5.0
    """Silence of the watch after which etcd is asked for a sign of life; as much again and the stream is dead."""
    backoff_min: float = 0.1
    backoff_max: float = 2.0
    """Bounds of the pause before the watch is opened again; it doubles in between, with jitter."""
    replica_ttl: float = 10.0
    """How long a replica that fell silent counts as alive."""
    close: float = 3.0
    """Deadline for writing what is pending when the table closes."""
