"""A call inside the engine, as the decision core sees it."""

import enum

import msgspec

from autellix_engine.policy.programs import Program


class CallState(enum.Enum):
    """Where a call is."""

    WAITING = "waiting"
    """In the queue of its level, or taken out of it for a moment while its admission is tried."""
    RUNNING = "running"
    """Holds a slot."""


class Call(msgspec.Struct, eq=False, kw_only=True):
    """One call. Durations are milliseconds, times are milliseconds on the caller's clock.

    There are two sets of counters: ``wait`` and ``service`` count since the last promotion and feed the starvation
    ratio; ``total_wait`` and ``total_service`` are for accounting and are never reset.
    """

    key: str
    """Unique in this engine."""
    program: Program
    path_before: float
    """The program's longest path when the call arrived: the call's own path continues it."""
    wait_before: float
    """The program's longest wait when the call arrived."""
    level: int
    order: int
    """Position inside the level: smaller is earlier."""
    gives_way: bool = True
    """Whether it may lose its slot to a better call."""
    state: CallState = CallState.WAITING
    queued: bool = False
    """Whether it stands in the queue of its level."""
    ready: bool = True
    """Whether it could run; a call that waits for something else than a slot (its grammar, its KV cache) could not."""
    promoted: bool = False
    """Promoted and not demoted since."""
    waiting_since: float | None = None
    """Start of the wait that is not counted yet; None while it runs or is not ready."""
    wait: float = 0.0
    service: float = 0.0
    total_wait: float = 0.0
    total_service: float = 0.0
    quantum_used: float = 0.0
    """Service in this level."""
    turn_service: float = 0.0
    """Service since it last got a slot."""
    preemptions: int = 0
    """By policy and for memory."""
    promotions: int = 0


class CallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to say of a call that ended, and its program's absolute figures after it."""

    program: str
    service_ms: float
    wait_ms: float
    level: int
    preemptions: int
    promotions: int
    path_ms: float
    program_wait_ms: float
    own_service_ms: float
    """The program's service on this incarnation."""
    own_calls: int
    own_prompt_tokens: int
    own_generated_tokens: int
