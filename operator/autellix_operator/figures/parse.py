"""Figures of a cluster from the metrics of its pods. Pure functions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_PROGRAMS: Final = "autellix_controller_programs"
_ENGINE_PROGRAMS: Final = "autellix_controller_engine_programs"
_WORST_WAIT: Final = "autellix_engine_worst_wait_ratio"
#: Digits of the ratio that are shown: each more would be another write of the status.
_DIGITS: Final = 2


class Unreadable(ValueError):
    """A page of metrics is not one."""


@dataclass(frozen=True, slots=True)
class ControllerFigures:
    """What a controller knows of all programs."""

    programs: int
    by_engine: Mapping[str, int] = field(default_factory=dict)
    """Live programs pinned to each engine, by the name of its pod."""


def controller_figures(page: str) -> ControllerFigures:
    """Reads a controller's metrics. Raises Unreadable."""
    programs: float | None = None
    by_engine = {}
    for name, labels, value in _samples(page):
        if name == _PROGRAMS:
            programs = value
        elif name == _ENGINE_PROGRAMS:
            by_engine[labels.get("engine", "")] = int(value)
    if programs is None:
        raise Unreadable(f"no {_PROGRAMS}")
    return ControllerFigures(int(programs), by_engine)


def worst_wait_percent(pages: Iterable[str]) -> int:
    """Largest ratio of wait to service among the calls that wait on engines now, in percent. Raises Unreadable."""
    ratios = [value for page in pages for name, _, value in _samples(page) if name == _WORST_WAIT]
    return rounded(max((ratio for ratio in ratios if math.isfinite(ratio)), default=0.0) * 100)


def rounded(value: float) -> int:
    """The value with two digits that count."""
    if value < 1:
        return 0
    places = _DIGITS - 1 - math.floor(math.log10(value))
    return int(round(value, places))


def _samples(page: str) -> Iterable[tuple[str, Mapping[str, str], float]]:
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except (ValueError, IndexError, KeyError) as error:
        raise Unreadable(str(error)) from error
