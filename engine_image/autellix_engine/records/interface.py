"""The seam between the scheduler (EngineCore process) and the engine's HTTP API (API-server process)."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from autellix_wire.records import CallRecord, LoadReport

#: Upper ends in seconds of the classes by which the time of decisions is counted; one more class lies above the last.
DECISION_SECONDS: Final = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 1e-1)


class SchedulerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What metrics show of the scheduler. Counts are since its start, so that a lost report loses nothing."""

    preemptions_policy: int = 0
    """For a better call."""
    preemptions_memory: int = 0
    """Because memory ran out."""
    promotions: int = 0
    bound_breaches: int = 0
    """Promoted calls that waited for longer than the bound allows."""
    worst_ratio: float = 0.0
    """Largest ratio of wait to service among the calls that wait now."""
    runnable_programs: int = 0
    """Programs with calls that run or wait."""
    running_by_level: tuple[int, ...] = ()
    decisions: tuple[int, ...] = (0,) * (len(DECISION_SECONDS) + 1)
    """Decisions by the class of their time."""
    decision_seconds: float = 0.0
    """Time of all decisions."""


class RecordPublisher(Protocol):
    """The scheduler's end of the channel. No method ever blocks a step: a full queue drops and counts."""

    @property
    def engine(self) -> str:
        """Name of this engine (its pod)."""

    @property
    def incarnation(self) -> str:
        """Identity of this start of the engine."""

    @property
    def dropped(self) -> int:
        """Records dropped so far because the queue was full."""

    def next_seq(self) -> int:
        """Takes the next sequence number, from 1. A number taken and then dropped shows as a gap on the stream."""

    def publish(self, record: CallRecord) -> None:
        """Hands over the record of a call that ended."""

    def report(self, load: LoadReport, state: Mapping[str, object], figures: SchedulerFigures) -> None:
        """Hands over a load report, the bounded state dump behind ``/autellix/v1/state``, and figures for metrics.

        A newer one replaces one that was not sent yet, so the newest always arrives. It has to be called when the
        engine runs empty, too: draining and routing go by the last report.
        """

    def ended_programs(self) -> Sequence[str]:
        """Programs that the API was told to forget since the last call. To be asked for by an idle engine, too."""

    def close(self) -> None:
        """Stops the channel; what is queued is sent if that takes no longer than a moment."""
