"""Histograms that cost little to add to."""

import bisect
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Counts:
    """Counts of one set of labels. Of one thread: it takes no lock, which is most of what the library's histogram
    costs."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds``: upper ones of the buckets, ascending; what is above the last has a bucket of its own."""
        self._bounds: Final = tuple(bounds)
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts a value; one that is equal to a bound belongs to its bucket."""
        self.buckets[bisect.bisect_left(self._bounds, value)] += 1
        self.sum += value


class Tally(Collector):
    """A histogram of one thread that Prometheus reads like any other."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], *, labels: Sequence[str] = ()) -> None:
        """``bounds`` as for ``Counts``."""
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._shown = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._bounds = tuple(bounds)
        self._counts: dict[tuple[str, ...], Counts] = {}
        if not labels:
            self.of()

    def of(self, *values: str) -> Counts:
        """The counts of one value for each label."""
        counts = self._counts.get(values)
        if counts is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name}: {len(self._labels)} labels are needed, {len(values)} were given")
            counts = self._counts[values] = Counts(self._bounds)
        return counts

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, counts in list(self._counts.items()):
            cumulated = itertools.accumulate(counts.buckets)
            family.add_metric(values, list(zip(self._shown, cumulated, strict=True)), counts.sum)
        yield family
