"""The seam between the scheduler (EngineCore process) and the engine's HTTP API (API-server process)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from autellix_wire.records import CallRecord, LoadReport


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

    def report(self, load: LoadReport, state: Mapping[str, object]) -> None:
        """Hands over a load report and the bounded state dump behind ``/autellix/v1/state``; only the newest is kept.

        It has to be called when the engine runs empty, too: draining and routing go by the last report.
        """

    def ended_programs(self) -> Sequence[str]:
        """Programs that the API was told to forget since the last call."""

    def close(self) -> None:
        """Stops the channel; what is queued is sent if that takes no longer than a moment."""
