"""Times of cells: warm, repeated, with the median; and the workload beside."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from autellix_kernels.settings import SwapSettings
from swapbench.cases import Case, Geometry, Method, Traffic
from swapbench.decode import Decode
from swapbench.methods import Mover, open_method
from swapbench.rig import Rig
from swapbench.verify import directions

MOST_REPEATS = 50
LEAST_REPEATS = 3


@dataclass(frozen=True)
class Measurement:
    """One cell. Seconds are wall time from before the submission until all bytes have arrived.

    Attributes:
        bytes_moved: in one repetition, both directions together.
        median_seconds, best_seconds: over the repetitions.
    """

    fragment_bytes: int
    total_bytes: int
    traffic: Traffic
    method: Method
    bytes_moved: int
    repeats: int
    median_seconds: float
    best_seconds: float

    @property
    def gigabytes_per_second(self) -> float:
        """By the median."""
        return self.bytes_moved / self.median_seconds / 1e9


@dataclass(frozen=True)
class SweepPoint:
    """The gather path under one choice of settings; both directions at once."""

    total_bytes: int
    thread_blocks: int
    staging_bytes: int
    median_seconds: float


@dataclass(frozen=True)
class DecodeResult:
    """Median step of the workload, alone (before and after) and beside transfers in both directions.

    Attributes:
        method: what ran beside.
        overlapped_steps: steps that began while transfers were on the way; the others do not count.
    """

    method: Method
    alone_seconds: float
    beside_seconds: float
    overlapped_steps: int

    @property
    def slowdown(self) -> float:
        """0.05: a step takes 5 % longer."""
        return self.beside_seconds / self.alone_seconds - 1


def measure(
    rig: Rig, case: Case, least_seconds: float, settings: SwapSettings, clock: Callable[[], float] = time.perf_counter
) -> Measurement:
    """Repeats one cell until its time is up, after one run to warm up."""
    site = rig.site(case.geometry)
    mover = open_method(case.method, rig, site, settings)
    seconds = _repeat(mover, case.traffic, least_seconds, clock)
    mover.close()
    moved = len(directions(case.traffic)) * case.geometry.blocks * site.layout.payload_bytes
    return Measurement(
        case.geometry.fragment_bytes,
        case.geometry.total_bytes,
        case.traffic,
        case.method,
        moved,
        len(seconds),
        statistics.median(seconds),
        min(seconds),
    )


def sweep(
    rig: Rig,
    geometry: Geometry,
    settings: SwapSettings,
    least_seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> SweepPoint:
    """The gather path with these settings."""
    mover = open_method(Method.OURS, rig, rig.site(geometry), settings)
    seconds = _repeat(mover, Traffic.BOTH, least_seconds, clock)
    mover.close()
    return SweepPoint(geometry.total_bytes, settings.thread_blocks, settings.staging_bytes, statistics.median(seconds))


def beside_decode(
    rig: Rig, decode: Decode, method: Method, geometry: Geometry, steps: int, settings: SwapSettings
) -> DecodeResult:
    """Steps alone, then steps while transfers in both directions are always on the way, then steps alone again: clocks
    of a GPU that was idle rise for a while, which must not count for or against the transfers."""
    alone = _steps(decode, steps)
    mover = open_method(method, rig, rig.site(geometry), settings)
    overlapped = []
    for _ in range(steps):
        if not mover.in_flight():
            for direction in directions(Traffic.BOTH):
                mover.submit(direction)
        overlapped.append(mover.in_flight())
        decode.step()
    mover.wait()
    beside = [seconds for seconds, counts in zip(decode.seconds(), overlapped, strict=True) if counts]
    mover.close()
    alone += _steps(decode, steps)
    return DecodeResult(method, statistics.median(alone), statistics.median(beside or alone), len(beside))


def _steps(decode: Decode, steps: int) -> list[float]:
    """Times of so many steps, without the first ones."""
    for _ in range(steps):
        decode.step()
    return decode.seconds()[steps // 10 :]


def _repeat(mover: Mover, traffic: Traffic, least_seconds: float, clock: Callable[[], float]) -> list[float]:
    seconds: list[float] = []
    for repeat in range(MOST_REPEATS + 1):
        begin = clock()
        for direction in directions(traffic):
            mover.submit(direction)
        mover.wait()
        if repeat > 0:
            seconds.append(clock() - begin)
        if len(seconds) >= LEAST_REPEATS and sum(seconds) >= least_seconds:
            break
    return seconds
