"""Prometheus' own rule engine over made-up series."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onenode.binaries import binary

#: Between two samples, and between two evaluations.
STEP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fired. ``since`` and ``last`` are the evaluations at which it first and last did, in seconds."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    since: int
    last: int

    @property
    def name(self) -> str:
        """Its name."""
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A value that a query gives."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: alerts, and samples for each query."""

    alerts: list[Alert]
    queries: list[list[Sample]]


def evaluate(rules: Sequence[Path], series: Mapping[str, str], minutes: int, queries: Sequence[str] = ()) -> Outcome:
    """Evaluates files of rules from the time 0 on, and the queries at the end.

    ``series`` are names with labels, and their values in promtool's notation (``1x9``: ten times 1, ``0+2x9``: from 0
    to 18). Raises ValueError with Prometheus' words if a rule or a query is not valid or fails.
    """
    scenario = {
        "rules": [str(file) for file in rules],
        "series": dict(series),
        "step": STEP_SECONDS,
        "until": minutes * 60,
        "queries": list(queries),
    }
    done = subprocess.run(
        [binary("rules")], input=json.dumps(scenario), capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise ValueError(done.stderr.strip())
    told = json.loads(done.stdout)
    return Outcome(
        [Alert(**alert) for alert in told["alerts"]],
        [[Sample(**sample) for sample in samples] for samples in told["queries"]],
    )
