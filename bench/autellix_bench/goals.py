"""What a measurement should reach, and the file and the lines in which it says so."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """One measured value and the most, or with ``at_least`` the least, that it should be."""

    name: str
    value: float
    goal: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def line(self) -> str:
        """For people."""
        bound = "at least" if self.at_least else "at most"
        value = f"{self.value:,.2f}{self.unit}"
        return f"{'met   ' if self.met else 'MISSED'}  {self.name}: {value} ({bound} {self.goal:g}{self.unit})"


def report_path(name: str) -> Path:
    """Where a measurement writes unless it is told otherwise."""
    return Path("build/bench") / f"{name}.json"


def write(path: Path, goals: Sequence[Goal], figures: object) -> None:
    """Prints the goals and writes them with the figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "load_average": os.getloadavg()[0],
        "goals": [msgspec.to_builtins(goal) | {"met": goal.met} for goal in goals],
        "figures": figures,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
    lines = [goal.line() for goal in goals]
    lines.append(
        f"{sum(goal.met for goal in goals)} of {len(goals)} goals met; load average {os.getloadavg()[0]:.1f}; {path}"
    )
    sys.stdout.write("\n".join(lines) + "\n")
