"""The JSON file, the figure and the table of a run."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from swapbench.cases import Method, Traffic, size_text
from swapbench.figure import draw
from swapbench.goals import goals, suggestions
from swapbench.measure import DecodeResult, Measurement, SweepPoint

SCHEMA = 1


@dataclass
class Results:
    """What a run has found so far.

    Attributes:
        skipped: cells for which the time was not enough.
        errors: what broke, in words; the rest was measured.
        complete: whether the run came to its end.
    """

    device: str
    dry_run: bool
    versions: dict[str, str]
    settings: dict[str, int]
    verified_bytes: int = 0
    measurements: list[Measurement] = field(default_factory=list)
    sweep: list[SweepPoint] = field(default_factory=list)
    decode: list[DecodeResult] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    complete: bool = False
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Everything, with rates, goals and suggested settings."""
        return {
            "schema": SCHEMA,
            **asdict(self),
            "measurements": [asdict(m) | {"gigabytes_per_second": m.gigabytes_per_second} for m in self.measurements],
            "decode": [asdict(result) | {"slowdown": result.slowdown} for result in self.decode],
            "goals": [asdict(goal) for goal in goals(self.measurements, self.decode)],
            "suggestions": [asdict(suggestion) for suggestion in suggestions(self.measurements, self.sweep)],
        }


def write(results: Results, folder: Path) -> tuple[Path, Path]:
    """Writes swap.json and swap.svg; whoever is stopped meanwhile leaves the files of before."""
    folder.mkdir(parents=True, exist_ok=True)
    document = results.as_json()
    data, figure = folder / "swap.json", folder / "swap.svg"
    _replace(data, json.dumps(document, indent=1) + "\n")
    note = " (dry run on a CPU: the times mean nothing)" if results.dry_run else ""
    _replace(figure, draw(results.measurements, f"Moving KV blocks: {results.device}{note}"))
    return data, figure


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def table(results: Results) -> str:
    """Rates in GB/s by cell, then goals and suggestions."""
    document = results.as_json()
    methods = [method for method in Method if any(m.method is method for m in results.measurements)]
    lines = [f"{'traffic':8}{'total':>10}{'fragment':>10}" + "".join(f"{method:>9}" for method in methods)]
    cells: dict[tuple[Traffic, int, int], dict[Method, float]] = {}
    for m in results.measurements:
        cells.setdefault((m.traffic, m.total_bytes, m.fragment_bytes), {})[m.method] = m.gigabytes_per_second
    for (traffic, total, fragment), rates in sorted(cells.items()):
        values = "".join(f"{rates[method]:9.2f}" if method in rates else f"{'-':>9}" for method in methods)
        lines.append(f"{traffic:8}{size_text(total):>10}{size_text(fragment):>10}{values}")
    for goal in document["goals"]:
        verdict = {True: "met", False: "MISSED", None: "not measured"}[goal["met"]]
        value = "" if goal["value"] is None else f" {goal['value']:.3f} ({goal['worst']})"
        lines.append(f"goal: {goal['name']}: {goal['target']}:{value} {verdict}")
    lines += [f"suggested {s['setting']}: {s['value']} ({s['why']})" for s in document["suggestions"]]
    lines += [f"FAILED: {error}" for error in results.errors]
    if not results.complete:
        lines.append("the run did not come to its end")
    if results.skipped:
        lines.append(f"{len(results.skipped)} cells skipped, the time was not enough")
    if results.dry_run:
        lines.append("dry run on a CPU: the times mean nothing")
    return "\n".join(lines)
