"""The process table as the rest of the controller sees it.

One entry for each live program, shared by all controller replicas. Implementations: etcd (production) and memory
(one process).
One contract suite runs over all of them.

Rules that every implementation keeps:

- Reads (``get``, ``page``) answer from a local mirror: they never wait and never raise because the store is away.
- Figures are monotone (see ``entry.merge``): applying a record twice, late, or out of order changes nothing more
  than applying it once.
- ``engine`` (the pin) and ``state`` change only by compare-and-swap: among all replicas one wins, and the losers
  learn the winner's value.
- An ended program does not come back through a late record, and one that is opened again is not charged with its
  former life: engines know each life by a name of its own (``ProgramEntry.engine_program``).
- A program expires when it was idle for the session timeout. A call that arrived and has not departed is activity.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from autellix_controller.table.entry import ProgramEntry
from autellix_wire.records import CallRecord


class TableUnavailable(Exception):
    """The store cannot be reached and the answer needs it. The message says for how long and why; it never holds a
    secret."""


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What readiness and metrics say about the table."""

    loaded: bool
    """The mirror has held a complete snapshot at least once: before that the replica is not ready."""
    connected: bool
    """The last contact with the store succeeded."""
    watching: bool = True
    """Changes of other replicas are followed; without a store there are none to miss."""
    detail: str = ""
    """One line for people, empty when all is well."""
    cause: str = ""
    """The same without how long it lasts, where ``detail`` says that."""
    revision: int = 0
    """The mirror knows everything up to this revision of the store."""
    seconds_since_reply: float = 0.0
    """Since the store last said anything by itself; a few seconds are normal."""
    pending_updates: int = 0
    """Programs whose accounting is waiting to be written."""
    oldest_update_seconds: float = 0.0
    """For how long the first of what is not written has waited; 0: all is written."""
    unreadable: int = 0
    """Entries that are damaged or of a newer schema: left as they are, and not used."""


class ProcessTable(Protocol):
    """All methods are called from one event loop. Times are Unix milliseconds, passed in."""

    async def start(self) -> None:
        """Begins loading and following the store in the background. Returns at once; ``health().loaded`` tells
        when it is usable."""

    async def close(self) -> None:
        """Writes what is pending (within a short deadline; what remains is lost, and the log says so) and stops."""

    def get(self, program: str) -> ProgramEntry | None:
        """The entry as this replica knows it, own unwritten accounting included."""

    def page(self, owner: str, after: str, limit: int) -> Sequence[ProgramEntry]:
        """At most ``limit`` active entries of one owner, ordered by id, with ids greater than ``after``."""

    def count(self) -> int:
        """Number of active programs."""

    def pins(self) -> Mapping[str, int]:
        """Live programs by the engine that they are pinned to; engines without any are left out."""
        ...

    async def open(self, program: str, *, owner: str, session: str, now_ms: int) -> ProgramEntry:
        """The active entry, made if there is none (a program that had ended starts afresh). One transaction at most.

        Many callers opening one program at once make one entry. With the store away the entry is made in the mirror
        only and written
        later, unless another replica was quicker.
        """

    async def pin(self, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        """Moves the pin from ``expected`` to ``engine`` by compare-and-swap; returns the entry with the *winner's*
        pin.

        A caller that lost uses the returned pin. Raises TableUnavailable if the store is away: the caller then keeps
        the pin it knows for this call (whether the move takes effect once the store is back is not known). Raises
        KeyError if there is no active entry.
        """

    async def end(self, program: str, *, cancel: bool = False) -> bool:
        """Ends the program: True if this call ended it. Its figures are dropped; late records do not bring it
        back. Raises TableUnavailable if the store is away.

        ``cancel`` is noted in the entry (``cancelled_ms``), so that every replica ends the calls it runs.
        """

    def arrived(self, program: str, now_ms: int) -> None:
        """Notes that a call of the program arrived: it is activity until it ``departed``, however long it runs.
        Batched."""

    def departed(self, program: str, now_ms: int) -> None:
        """Notes that a call which ``arrived`` here has left this replica, however it ended. Exactly once for each
        (in a ``finally``): until then the program does not expire."""

    def apply(self, record: CallRecord, now_ms: int) -> None:
        """Merges a record's absolute figures into the entry. Batched; visible to ``get`` at once.

        ``record.program`` is an ``engine_program``. Records of unknown and ended programs and of former lives are
        ignored.
        """

    async def flush(self) -> None:
        """Returns once everything applied so far is written. Raises TableUnavailable if it cannot be."""

    def live_replicas(self) -> frozenset[str]:
        """Names of controller replicas known to be alive, this one included."""

    def health(self) -> TableHealth:
        """Never waits."""
