"""One run from start to end: verify, decode beside, settings, cells."""

from collections.abc import Callable
from dataclasses import replace

from autellix_kernels.settings import SwapSettings
from swapbench.cases import Method, Plan, Traffic, cases, geometry
from swapbench.decode import Decode
from swapbench.measure import beside_decode, measure, sweep
from swapbench.methods import ALWAYS_GATHER
from swapbench.report import Results
from swapbench.rig import Rig
from swapbench.verify import MOVES_BLOCKS, verify


def run(
    rig: Rig, decode: Decode, plan: Plan, results: Results, clock: Callable[[], float], say: Callable[[str], None]
) -> None:
    """Fills `results`. The short parts come first, then cells until the budget is used up.

    Raises:
        WrongBytes: before anything was measured.
    """
    begin = clock()
    batched = rig.device.info.batched_copy
    methods = [method for method in MOVES_BLOCKS if method is not Method.BATCH or batched]
    for fragment in plan.fragments:
        for method in methods:
            for traffic in Traffic:
                results.verified_bytes += verify(rig, plan, method, fragment, traffic)
    say(f"verified {results.verified_bytes} bytes after {clock() - begin:.0f} s")

    settings = SwapSettings()
    beside = geometry(plan.fragments[0], plan.decode_total)
    if beside is not None:
        for method in (Method.OURS, Method.BATCH, Method.LARGE):
            if method is not Method.BATCH or batched:
                results.decode.append(beside_decode(rig, decode, method, beside, plan.decode_steps, settings))
    for total in plan.sweep_totals:
        shape = geometry(plan.sweep_fragment, total)
        if shape is not None:
            results.sweep += [
                sweep(rig, shape, replace(ALWAYS_GATHER, thread_blocks=few, staging_bytes=size), plan.least_seconds / 4)
                for few in plan.sweep_thread_blocks
                for size in plan.sweep_staging_bytes
            ]
    say(f"decode and settings measured after {clock() - begin:.0f} s")

    for case in cases(plan):
        if case.method is Method.BATCH and not batched:
            continue
        if clock() - begin > plan.budget_seconds:
            results.skipped.append(
                f"{case.method} {case.traffic} {case.geometry.total_bytes} {case.geometry.fragment_bytes}"
            )
            continue
        results.measurements.append(measure(rig, case, plan.least_seconds, settings))
    results.seconds = clock() - begin
    say(f"done after {results.seconds:.0f} s")
