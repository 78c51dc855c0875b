"""What is measured, in the order of importance: a run that ends early lacks the least important."""

from dataclasses import dataclass
from enum import StrEnum

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


class Traffic(StrEnum):
    """STORE: GPU to host. LOAD: host to GPU. BOTH: one of each at once."""

    STORE = "store"
    LOAD = "load"
    BOTH = "both"


class Method(StrEnum):
    """LARGE: one pinned copy, what the bus can do. BATCH: the driver's batched copy. LOOP: one copy per fragment.

    GATHER: our kernels and pipeline. OURS: the engine as it chooses by its settings.
    """

    LARGE = "large"
    BATCH = "batch"
    GATHER = "gather"
    OURS = "ours"
    LOOP = "loop"


@dataclass(frozen=True)
class Geometry:
    """One size of fragments and of transfers, in bytes; a transfer is `blocks` blocks of `tensors` fragments."""

    fragment_bytes: int
    total_bytes: int
    tensors: int
    blocks: int


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    geometry: Geometry
    traffic: Traffic
    method: Method


@dataclass(frozen=True)
class Plan:
    """A whole run. Sizes in bytes, time in seconds.

    Attributes:
        fragments, totals: measured against each other, the first first.
        verified_total: size of the transfers that are verified.
        least_seconds: how long a cell is repeated at least.
        budget_seconds: so long after the start of the process no further cell is begun.
        decode_steps: steps of the workload beside.
        decode_total: size of the transfers that run beside it.
        sweep_thread_blocks, sweep_staging_bytes: settings tried out on `sweep_fragment` and `sweep_totals`.
    """

    fragments: tuple[int, ...]
    totals: tuple[int, ...]
    verified_total: int
    least_seconds: float
    budget_seconds: float
    decode_steps: int
    decode_total: int
    sweep_thread_blocks: tuple[int, ...]
    sweep_staging_bytes: tuple[int, ...]
    sweep_fragment: int
    sweep_totals: tuple[int, ...]


FULL = Plan(
    fragments=(8 * KIB, 16 * KIB, 32 * KIB, 4 * KIB, 64 * KIB, 256 * KIB, 2 * MIB),
    totals=(64 * MIB, 8 * MIB, GIB, MIB, 256 * MIB),
    verified_total=16 * MIB,
    least_seconds=0.2,
    budget_seconds=420,
    decode_steps=200,
    decode_total=512 * MIB,
    sweep_thread_blocks=(16, 32, 64, 128),
    sweep_staging_bytes=(MIB, 2 * MIB, 4 * MIB, 8 * MIB),
    sweep_fragment=16 * KIB,
    sweep_totals=(8 * MIB, 64 * MIB),
)
"""For a GPU: at most seven of the eight minutes that a run may take."""

DRY = Plan(
    fragments=(4 * KIB, 64 * KIB),
    totals=(512 * KIB, 128 * KIB),
    verified_total=512 * KIB,
    least_seconds=0,
    budget_seconds=60,
    decode_steps=4,
    decode_total=256 * KIB,
    sweep_thread_blocks=(1, 4),
    sweep_staging_bytes=(64 * KIB, 128 * KIB),
    sweep_fragment=4 * KIB,
    sweep_totals=(256 * KIB,),
)
"""For the logic alone."""

MOST_TENSORS = 64
"""Keys and values of 32 layers, as in a model of 8 billion parameters."""


def geometry(fragment_bytes: int, total_bytes: int) -> Geometry | None:
    """Fragments of a transfer spread over up to 64 tensors; None where a transfer would be less than a fragment."""
    fragments = total_bytes // fragment_bytes
    if fragments == 0:
        return None
    tensors = min(MOST_TENSORS, fragments)
    return Geometry(fragment_bytes, total_bytes, tensors, fragments // tensors)


def cases(plan: Plan) -> list[Case]:
    """All cells, the most important first."""
    shapes = [shape for total in plan.totals for fragment in plan.fragments if (shape := geometry(fragment, total))]
    return [Case(shape, traffic, method) for shape in shapes for traffic in Traffic for method in Method]


def size_text(size: int) -> str:
    """As "8 KiB"."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"
