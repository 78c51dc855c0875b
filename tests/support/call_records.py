"""Call records for tests that care about a few of their fields."""

from typing import Any

from autellix_wire.records import CallRecord, ProgramTotals


def call_record(seq: int = 1, **fields: Any) -> CallRecord:
    """The record of a finished call of program "p" that ran for a millisecond, with these fields changed."""
    usual: dict[str, Any] = {
        "engine": "e",
        "incarnation": "i",
        "program": "p",
        "call": f"c{seq}",
        "outcome": "finished",
        "service_ms": 1.0,
        "wait_ms": 0.0,
        "path_ms": 1.0,
        "program_wait_ms": 0.0,
        "totals": ProgramTotals(service_ms=float(seq), calls=seq),
    }
    return CallRecord(seq=seq, **(usual | fields))
