"""What the figures must be, and what they say about the defaults. Pure functions of the measurements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swapbench.cases import KIB, MIB, Method, Traffic, size_text
from swapbench.measure import DecodeResult, Measurement, SweepPoint

NOISE = 0.03
"""Two runs of one cell differ by this much; less is not counted as slower."""

_Cell = tuple[int, int, Traffic]


@dataclass(frozen=True)
class Goal:
    """One goal. `value` is the worst cell's; `met` is None where nothing was measured that it speaks of."""

    name: str
    target: str
    value: float | None
    worst: str
    met: bool | None


@dataclass(frozen=True)
class Suggestion:
    """A setting as these measurements would have it; None where they do not say."""

    setting: str
    value: int | None
    why: str


def goals(measurements: Sequence[Measurement], decode: Sequence[DecodeResult]) -> list[Goal]:
    """All goals, met or not."""
    rates = _rates(measurements)
    small = {8 * KIB, 16 * KIB, 32 * KIB}
    big = [cell for cell in rates if cell[0] in small and cell[1] >= 64 * MIB]
    medium = [cell for cell in rates if cell[0] in small and cell[1] == 8 * MIB]
    return [
        _ratio(
            "share of one large pinned copy, 64 MiB and more, fragments of 8 to 32 KiB", 0.95, big, rates, Method.LARGE
        ),
        _ratio("share of one large pinned copy, 8 MiB, fragments of 8 to 32 KiB", 0.85, medium, rates, Method.LARGE),
        _ratio("share of the driver's batched copy, all sizes", 1 - NOISE, list(rates), rates, Method.BATCH),
        _slowdown([result for result in decode if result.method is Method.OURS and result.overlapped_steps > 0]),
    ]


def suggestions(measurements: Sequence[Measurement], points: Sequence[SweepPoint]) -> list[Suggestion]:
    """The settings that were best here."""
    rates = _rates(measurements)
    return [_gather_below(rates), _gather_from(measurements, rates), *_best_of_sweep(points)]


def _rates(measurements: Iterable[Measurement]) -> dict[_Cell, dict[Method, float]]:
    rates: dict[_Cell, dict[Method, float]] = {}
    for m in measurements:
        rates.setdefault((m.fragment_bytes, m.total_bytes, m.traffic), {})[m.method] = m.gigabytes_per_second
    return rates


def _ratio(
    name: str, target: float, cells: Sequence[_Cell], rates: dict[_Cell, dict[Method, float]], base: Method
) -> Goal:
    ratios = {
        cell: rates[cell][Method.OURS] / rates[cell][base]
        for cell in cells
        if {Method.OURS, base} <= rates[cell].keys()
    }
    if not ratios:
        return Goal(name, f"at least {target:g}", None, "", None)
    worst = min(ratios, key=lambda cell: ratios[cell])
    return Goal(name, f"at least {target:g}", ratios[worst], _describe(worst), ratios[worst] >= target)


def _slowdown(results: Sequence[DecodeResult]) -> Goal:
    name, target = "slow-down of decoding beside transfers in both directions", 0.05
    if not results:
        return Goal(name, f"under {target:g}", None, "", None)
    worst = max(results, key=lambda result: result.slowdown)
    return Goal(name, f"under {target:g}", worst.slowdown, f"{worst.overlapped_steps} steps", worst.slowdown < target)


def _gather_below(rates: dict[_Cell, dict[Method, float]]) -> Suggestion:
    """The smallest fragment from which on the batched copy wins in every direction, at 64 MiB and more."""
    why = "smallest fragments for which the batched copy is at least as fast as gathering, at 64 MiB and more"
    wins: dict[int, bool] = {}
    for (fragment, total, _), by_method in rates.items():
        if total >= 64 * MIB and {Method.GATHER, Method.BATCH} <= by_method.keys():
            wins[fragment] = wins.get(fragment, True) and by_method[Method.BATCH] >= by_method[Method.GATHER]
    winning = [fragment for fragment in wins if all(wins[larger] for larger in wins if larger >= fragment)]
    return Suggestion("gather_below_bytes", min(winning, default=None), why)


def _gather_from(measurements: Sequence[Measurement], rates: dict[_Cell, dict[Method, float]]) -> Suggestion:
    """The smallest number of fragments from which on gathering wins, for small fragments."""
    why = "fewest fragments of 32 KiB and less from which on gathering is at least as fast as the batched copy"
    wins: dict[int, bool] = {}
    for m in measurements:
        by_method = rates[m.fragment_bytes, m.total_bytes, m.traffic]
        if m.method is Method.GATHER and m.fragment_bytes <= 32 * KIB and Method.BATCH in by_method:
            count = m.total_bytes // m.fragment_bytes
            wins[count] = wins.get(count, True) and by_method[Method.GATHER] >= by_method[Method.BATCH]
    winning = [count for count in wins if all(wins[larger] for larger in wins if larger >= count)]
    return Suggestion("gather_from_fragments", min(winning, default=None), why)


def _best_of_sweep(points: Sequence[SweepPoint]) -> list[Suggestion]:
    """The choice with the least time summed over sizes, each relative to that size's best."""
    if not points:
        return [Suggestion("thread_blocks", None, "no sweep"), Suggestion("staging_bytes", None, "no sweep")]
    best = {
        total: min(p.median_seconds for p in points if p.total_bytes == total)
        for total in {p.total_bytes for p in points}
    }
    cost: dict[tuple[int, int], float] = {}
    for p in points:
        choice = (p.thread_blocks, p.staging_bytes)
        cost[choice] = cost.get(choice, 0.0) + p.median_seconds / best[p.total_bytes]
    # Of choices that are as good as the best within noise, the one that takes least of the GPU.
    least = min(cost.values())
    thread_blocks, staging = min(choice for choice in cost if cost[choice] <= least * (1 + NOISE))
    why = "least of the GPU among the choices within noise of the fastest, both directions at once"
    return [Suggestion("thread_blocks", thread_blocks, why), Suggestion("staging_bytes", staging, why)]


def _describe(cell: _Cell) -> str:
    return f"{cell[2]}, {size_text(cell[1])} in fragments of {size_text(cell[0])}"
