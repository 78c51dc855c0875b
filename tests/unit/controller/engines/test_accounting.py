import msgspec

from autellix_controller.engines.accounting import Accounting, ForeignRecords
from autellix_controller.table.memory import MemoryTable
from autellix_wire.context import ProgramContext
from autellix_wire.records import CallRecord, ProgramTotals
from support.call_records import call_record


class Table(MemoryTable):
    def __init__(self) -> None:
        super().__init__(replica="me", session_timeout_seconds=60, clock_ms=lambda: 1)
        self.live = {"me", "other"}

    def live_replicas(self) -> frozenset[str]:
        return frozenset(self.live)


def record(replica: str, service_ms: float = 10.0, program: str = "p") -> CallRecord:
    return call_record(
        program=program,
        replica=replica,
        service_ms=service_ms,
        path_ms=service_ms,
        totals=ProgramTotals(service_ms=service_ms, calls=1),
    )


async def opened() -> tuple[Table, Accounting]:
    table = Table()
    await table.open("p", owner="o", session="s", now_ms=1)
    return table, Accounting(table, "me")


def service(table: Table) -> float:
    entry = table.get("p")
    assert entry is not None
    return entry.service_ms


async def test_own_records_and_those_of_no_live_replica_are_applied() -> None:
    for replica in ("me", "", "dead"):
        table, accounting = await opened()
        accounting.record(record(replica), now=0.0, now_ms=2)
        assert service(table) == 10.0


async def test_records_of_a_live_replica_are_left_to_it_and_taken_over_when_it_dies() -> None:
    table, accounting = await opened()
    accounting.record(record("other"), now=0.0, now_ms=2)
    accounting.record(record("other", 25.0), now=1.0, now_ms=3)
    accounting.adopt(now=2.0, now_ms=4)
    assert service(table) == 0.0
    table.live.discard("other")
    accounting.adopt(now=3.0, now_ms=5)
    assert service(table) == 25.0
    assert (accounting.applied, accounting.left_to_sender) == (1, 2)


def test_held_records_are_bounded_in_number_and_age() -> None:
    held = ForeignRecords(limit=2, seconds=10)
    for number in range(3):
        held.hold(record("other", program=f"p{number}"), now=float(number))
    assert len(held) == 2
    assert held.orphaned({"other"}, now=11.5) == []
    assert len(held) == 1
    assert [one.program for one in held.orphaned(set(), now=11.5)] == ["p2"]
    assert len(held) == 0


async def test_calls_on_a_stock_engine_add_up() -> None:
    table, accounting = await opened()
    entry = table.get("p")
    assert entry is not None
    context = ProgramContext(program=entry.engine_program, call="c", replica="me")
    accounting.estimate("p", context, engine="e1", ran_ms=10.0, now_ms=2)
    accounting.estimate("p", context, engine="e2", ran_ms=5.0, now_ms=2)
    accounting.estimate("p", msgspec.structs.replace(context, path_ms=10.0), engine="e1", ran_ms=7.0, now_ms=3)
    entry = table.get("p")
    assert entry is not None
    assert (entry.service_ms, entry.calls, entry.path_ms) == (22.0, 3, 17.0)
    accounting.estimate("unknown", context, engine="e1", ran_ms=1.0, now_ms=4)
