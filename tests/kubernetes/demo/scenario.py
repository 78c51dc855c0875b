"""What the demo plays, and what is read off it. Pure: no clock, no network."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from support.traffic import Program, ProgramRun

#: Calls that the engine runs at the same time.
SLOTS = 2
#: Every slot is taken by long programs, with one more in line.
LONG = tuple(Program(name=f"long-{i}", calls=2, max_tokens=700, prompt_words=30, streamed=False) for i in range(1, 4))
#: Short programs arrive one after another, from the moment at which the long ones hold every slot.
SHORT = tuple(Program(name=f"short-{i}", calls=3, max_tokens=12, start_after_seconds=0.6 * i) for i in range(1, 7))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One run of the scenario in figures. Seconds, medians over programs."""

    order: str
    short_first_token: float
    short_first_token_worst: float
    short_program: float
    long_program: float
    preemptions: int


def summarise(order: str, runs: Sequence[ProgramRun], preemptions: int) -> Summary:
    """Reads the figures off the runs of ``LONG`` and ``SHORT``."""
    short = [r for r in runs if r.program.name.startswith("short")]
    long = [r for r in runs if r.program.name.startswith("long")]
    first = [call.first_token_seconds for r in short for call in r.calls]
    return Summary(
        order=order,
        short_first_token=statistics.median(first),
        short_first_token_worst=max(first),
        short_program=statistics.median(r.seconds for r in short),
        long_program=statistics.median(r.seconds for r in long),
        preemptions=preemptions,
    )


def comparison(stock: Summary, plas: Summary) -> str:
    """The table that the demo is about."""
    rows: list[tuple[str, str, str, str]] = [("", stock.order, plas.order, "")]
    for label, name in (
        ("short programs: wait for a call's first token, median", "short_first_token"),
        ("short programs: the same, worst", "short_first_token_worst"),
        ("short programs: from start to end, median", "short_program"),
        ("long programs: from start to end, median", "long_program"),
    ):
        a, b = float(getattr(stock, name)), float(getattr(plas, name))
        rows.append((label, f"{a:.2f} s", f"{b:.2f} s", ratio(a, b)))
    rows.append(("preemptions", str(stock.preemptions), str(plas.preemptions), ""))
    return aligned(rows)


def ratio(stock: float, plas: float) -> str:
    """How the second compares to the first, in words."""
    if stock <= 0 or plas <= 0:
        return ""
    return f"{stock / plas:.1f} times sooner" if stock >= plas else f"{plas / stock:.1f} times later"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of text: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
