"""The process table as text, for people."""

from collections.abc import Sequence

from autellix_controller.table.entry import ProgramEntry

_COLUMNS = ("SESSION", "OWNER", "STATE", "ENGINE", "CALLS", "SERVICE", "WAIT", "IDLE", "PROGRAM")


def _duration(milliseconds: float) -> str:
    seconds = max(0.0, milliseconds / 1000.0)
    if seconds < 60:
        return f"{seconds:.1f}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m{int(seconds % 60):02d}s"
    return f"{int(seconds // 3600)}h{int(seconds % 3600 // 60):02d}m"


def render(entries: Sequence[ProgramEntry], now_ms: int) -> str:
    """One line for each program, the one with most service first."""
    rows = [_COLUMNS]
    for entry in sorted(entries, key=lambda e: (-e.service_ms, e.session)):
        rows.append(
            (
                entry.session,
                entry.owner,
                entry.state,
                entry.engine or "-",
                str(entry.calls),
                _duration(entry.service_ms),
                _duration(entry.wait_ms),
                _duration(now_ms - entry.last_activity_ms),
                entry.id[:12],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
