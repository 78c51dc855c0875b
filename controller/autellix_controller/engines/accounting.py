"""Which call records this replica applies to the process table."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from autellix_controller.table.interface import ProcessTable
from autellix_wire.context import ProgramContext
from autellix_wire.records import CallRecord, ProgramTotals

#: How long a live replica may take to write what its records say. Well above its batching and its lease.
FOREIGN_SECONDS: Final = 60.0
#: Programs of live replicas whose newest record is held; the oldest make room.
FOREIGN_PROGRAMS: Final = 20_000


class ForeignRecords:
    """The newest record of each program that a live replica is to apply, in case it dies before it did.

    Records carry absolute values, so one for each program and engine incarnation is enough.
    """

    def __init__(self, limit: int = FOREIGN_PROGRAMS, seconds: float = FOREIGN_SECONDS) -> None:
        self._limit, self._seconds = limit, seconds
        self._held: OrderedDict[tuple[str, str], tuple[float, CallRecord]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, record: CallRecord, now: float) -> None:
        """Keeps a record. ``now`` is monotonic seconds."""
        key = (record.program, record.incarnation)
        self._held.pop(key, None)
        self._held[key] = (now, record)
        while len(self._held) > self._limit:
            self._held.popitem(last=False)

    def orphaned(self, live: Collection[str], now: float) -> list[CallRecord]:
        """Takes out the records whose replica is not alive any more, and drops those that are old."""
        while self._held and now - next(iter(self._held.values()))[0] > self._seconds:
            self._held.popitem(last=False)
        gone = [key for key, (_, record) in self._held.items() if record.replica not in live]
        return [self._held.pop(key)[1] for key in gone]


class Accounting:
    """Applies records: those of our own calls, and those that no live replica will apply."""

    def __init__(self, table: ProcessTable, replica: str) -> None:
        self._table, self._replica = table, replica
        self._foreign = ForeignRecords()
        self.applied = 0
        """Records applied here, those of dead replicas included."""
        self.left_to_sender = 0
        """Records that another live replica applies."""
        self.estimated = 0
        """Calls charged by the time they ran."""

    def record(self, record: CallRecord, *, now: float, now_ms: int) -> None:
        """Takes in a record. ``now`` is monotonic seconds, ``now_ms`` Unix time."""
        if record.replica == self._replica or record.replica not in self._table.live_replicas():
            self._table.apply(record, now_ms)
            self.applied += 1
        else:
            self._foreign.hold(record, now)
            self.left_to_sender += 1

    def adopt(self, *, now: float, now_ms: int) -> None:
        """Applies what replicas that died meanwhile may have left undone."""
        for record in self._foreign.orphaned(self._table.live_replicas(), now):
            self._table.apply(record, now_ms)
            self.applied += 1

    def estimate(self, program: str, context: ProgramContext, *, engine: str, ran_ms: float, now_ms: int) -> None:
        """Charges a call on an engine that keeps no records: its service is the time it ran, its wait unknown.

        ``context`` is the program as it was when the call started. Our own counter for each engine stands in for the
        engine's incarnation.
        """
        entry = self._table.get(program)
        if entry is None:
            return
        incarnation = f"{self._replica}@{engine}"
        before = entry.totals.get(incarnation, ProgramTotals())
        self._table.apply(
            CallRecord(
                seq=0,
                engine=engine,
                incarnation=incarnation,
                program=context.program,
                call=context.call,
                replica=self._replica,
                outcome="finished",
                service_ms=ran_ms,
                wait_ms=0.0,
                path_ms=context.path_ms + ran_ms,
                program_wait_ms=entry.wait_ms,
                totals=ProgramTotals(service_ms=before.service_ms + ran_ms, calls=before.calls + 1),
            ),
            now_ms,
        )
        self.estimated += 1
