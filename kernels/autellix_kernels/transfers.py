"""What the swap engine says about transfers: handles, results, totals."""

from dataclasses import dataclass

from autellix_kernels.plan import Direction, Path


@dataclass(frozen=True)
class Transfer:
    """A submitted transfer.

    Attributes:
        number: 1, 2, ... in the order of submission.
        size: bytes of payload.
    """

    number: int
    direction: Direction
    path: Path
    blocks: int
    size: int


@dataclass(frozen=True)
class Finished:
    """A transfer that ended: all bytes are where they belong.

    Attributes:
        seconds: time on the device since nothing but the lane itself held it back. A load fetches into staging before
            what it was ordered after has ended; then it counts from the first fetch.
    """

    transfer: Transfer
    seconds: float


@dataclass(frozen=True)
class SwapStats:
    """Totals since the start of the engine, by direction ("store", "load"); for metrics.

    Attributes:
        size: bytes moved by finished transfers.
        seconds: device time of finished transfers.
        transfers: number of finished transfers by (direction, path).
        mover: "nvrtc", or "torch" where the fall-back is in use.
    """

    size: dict[Direction, int]
    seconds: dict[Direction, float]
    transfers: dict[tuple[Direction, Path], int]
    mover: str
