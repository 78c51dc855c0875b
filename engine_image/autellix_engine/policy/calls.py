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

    There are two sets of counters. ``total_service`` and ``total_wait`` are for accounting and only grow; ``service``
    and ``wait`` feed the starvation ratio and count from marks that a promotion moves. So a promotion cannot lose
    anything, and neither can a demotion or a turn, which have marks of their own.
    """

    key: str
    """Unique in this engine."""
    program: Program
    thread: str
    """Which of the program's threads it belongs to, for people only: no policy needs to know."""
    path_before: float
    """The program's longest path when the call arrived: the call's own path continues it."""
    wait_before: float
    """The program's longest wait when the call arrived."""
    level: int
    quanta: tuple[float, ...]
    """The quantum of each level, as it was when the call arrived."""
    quantum_end: float
    """``total_service`` at which the quantum of the call's level is used up."""
    order: int
    """Position inside the level: smaller is earlier."""
    min_run: float
    """Service that it keeps its slot for once it was preempted and resumed."""
    gives_way: bool = True
    """Whether it may lose its slot to a better call."""
    state: CallState = CallState.WAITING
    queued: bool = False
    """Whether it stands in the queue of its level."""
    ready: bool = True
    """Whether it could run; a call that waits for something else than a slot (its grammar, its KV cache) could not."""
    promoted: bool = False
    """Promoted and not demoted since."""
    promoted_at: float | None = None
    """When it was promoted, while it waits for the slot that it was promoted for."""
    promoted_behind: int = 0
    """Promoted calls that waited in front of it then."""
    waiting_since: float | None = None
    """Start of the wait that is not counted yet; None while it runs or is not ready."""
    total_wait: float = 0.0
    total_service: float = 0.0
    wait_mark: float = 0.0
    """``total_wait`` at the last promotion."""
    service_mark: float = 0.0
    """``total_service`` at the last promotion."""
    turn_mark: float = 0.0
    """``total_service`` when it last got a slot."""
    preemptions: int = 0
    """By policy and for memory."""
    promotions: int = 0

    @property
    def wait(self) -> float:
        """Wait since the last promotion, up to ``waiting_since``."""
        return self.total_wait - self.wait_mark

    @property
    def service(self) -> float:
        """Service since the last promotion."""
        return self.total_service - self.service_mark

    @property
    def keeps_slot(self) -> bool:
        """Whether it may not be asked to give way now: never, or not before its minimum run is over."""
        return not self.gives_way or (self.preemptions > 0 and self.total_service - self.turn_mark < self.min_run)


class CallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to say of a call that ended, and its program's absolute figures after it."""

    program: str
    thread: str
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
