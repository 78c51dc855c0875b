"""One run from start to end: verify, decode beside, settings, cells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autellix_kernels.settings import SwapSettings
from swapbench.cases import Case, Geometry, Method, Plan, Traffic, cases, geometry, size_text
from swapbench.decode import Decode
from swapbench.measure import Measurement, beside_decode, measure, sweep
from swapbench.methods import ALWAYS_GATHER
from swapbench.report import Results
from swapbench.rig import Rig
from swapbench.verify import MOVES_BLOCKS, WrongBytes, verify

MOST_FAILURES = 3
"""After so many parts that broke nothing more is tried: the GPU or the driver is in a state that nothing survives."""


class GaveUp(Exception):
    """Too many parts broke."""


@dataclass(frozen=True)
class Reporting:
    """How a run is told while it goes on.

    Attributes:
        clock: seconds since the start of the process.
        say: gets lines about how far it is.
        save: writes down what there is so far.
    """

    clock: Callable[[], float]
    say: Callable[[str], object]
    save: Callable[[], object]


def run(rig: Rig, open_decode: Callable[[], Decode], plan: Plan, results: Results, reporting: Reporting) -> None:
    """Fills `results`. The short parts come first, then cells until the budget is used up.

    A part that breaks is written down in `results`, and the next one is tried: time on a GPU is rare.

    Raises:
        WrongBytes: before anything was measured.
        GaveUp: too much broke.
    """
    batched = rig.device.info.batched_copy
    _verify(rig, plan, results, [method for method in MOVES_BLOCKS if method is not Method.BATCH or batched])
    _told(results, reporting, f"verified {results.verified_bytes} bytes")

    settings = SwapSettings()
    beside = geometry(plan.fragments[0], plan.decode_total)
    if beside is not None:
        methods = [
            method for method in (Method.OURS, Method.BATCH, Method.LARGE) if method is not Method.BATCH or batched
        ]
        _attempt(
            "decode", results, reporting, lambda: _decode(rig, open_decode(), methods, beside, plan, settings, results)
        )
        _told(results, reporting, "decoding beside transfers measured")
    _attempt("settings", results, reporting, lambda: _sweep(rig, plan, results))
    _told(results, reporting, "settings measured")

    for shape, group in _by_geometry(cases(plan)).items():
        measured = len(results.measurements)
        for case in group:
            if case.method is Method.BATCH and not batched:
                continue
            if reporting.clock() > plan.budget_seconds:
                results.skipped.append(_name(case))
                continue
            _attempt(_name(case), results, reporting, partial(_cell, rig, case, plan, settings, results))
        if fresh := results.measurements[measured:]:
            _told(results, reporting, _progress(shape, fresh))
    results.complete = True
    _told(results, reporting, "done")


def _verify(rig: Rig, plan: Plan, results: Results, methods: Sequence[Method]) -> None:
    for fragment in plan.fragments:
        for method in methods:
            for traffic in Traffic:
                results.verified_bytes += verify(rig, plan, method, fragment, traffic)


def _decode(
    rig: Rig,
    decode: Decode,
    methods: Sequence[Method],
    shape: Geometry,
    plan: Plan,
    settings: SwapSettings,
    results: Results,
) -> None:
    for method in methods:
        results.decode.append(beside_decode(rig, decode, method, shape, plan.decode_steps, settings))


def _sweep(rig: Rig, plan: Plan, results: Results) -> None:
    for total in plan.sweep_totals:
        shape = geometry(plan.sweep_fragment, total)
        if shape is not None:
            results.sweep += [
                sweep(rig, shape, replace(ALWAYS_GATHER, thread_blocks=few, staging_bytes=size), plan.least_seconds / 4)
                for few in plan.sweep_thread_blocks
                for size in plan.sweep_staging_bytes
            ]


def _cell(rig: Rig, case: Case, plan: Plan, settings: SwapSettings, results: Results) -> None:
    results.measurements.append(measure(rig, case, plan.least_seconds, settings))


def _attempt(what: str, results: Results, reporting: Reporting, work: Callable[[], None]) -> None:
    try:
        work()
    except WrongBytes:
        raise
    except Exception as error:  # of torch, of the driver, of ours: whatever it is, the rest is worth trying
        results.errors.append(f"{what}: {type(error).__name__}: {error}")
        _told(results, reporting, f"FAILED {results.errors[-1]}")
        if len(results.errors) == MOST_FAILURES:
            raise GaveUp(f"{MOST_FAILURES} parts broke, the last: {results.errors[-1]}") from error


def _told(results: Results, reporting: Reporting, line: str) -> None:
    results.seconds = reporting.clock()
    reporting.say(f"{results.seconds:4.0f} s  {line}")
    reporting.save()


def _by_geometry(all_cases: Sequence[Case]) -> dict[Geometry, list[Case]]:
    groups: dict[Geometry, list[Case]] = {}
    for case in all_cases:
        groups.setdefault(case.geometry, []).append(case)
    return groups


def _name(case: Case) -> str:
    shape = case.geometry
    return f"{case.method} {case.traffic} {size_text(shape.total_bytes)} in {size_text(shape.fragment_bytes)}"


def _progress(shape: Geometry, fresh: Sequence[Measurement]) -> str:
    """Rates of the engine and of the bus for each direction."""
    rates = {(m.traffic, m.method): m.gigabytes_per_second for m in fresh}
    parts = [
        f"{traffic} {rates[traffic, Method.OURS]:.1f} of {rates[traffic, Method.LARGE]:.1f}"
        for traffic in Traffic
        if {(traffic, Method.OURS), (traffic, Method.LARGE)} <= rates.keys()
    ]
    return f"{size_text(shape.total_bytes)} in {size_text(shape.fragment_bytes)}, GB/s: {', '.join(parts)}"
