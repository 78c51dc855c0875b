"""Which transfers in flight touch the blocks and slots of a new one, so that the new one can be ordered after them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autellix_kernels.layout import IdArray
from autellix_kernels.plan import Direction


@dataclass(frozen=True)
class Conflicts:
    """Numbers of earlier transfers of the other direction that a new one must wait for, by what they share.

    Attributes:
        blocks: a store has to wait until these loads have written its blocks; a load until these stores have read them.
        slots: a load has to wait until these stores have written its slots; a store until these loads have read them.
    """

    blocks: tuple[int, ...]
    slots: tuple[int, ...]


class HazardLedger:
    """Remembers for each block and slot the last transfer of each direction, in arrays: the cost grows with the
    transfer, not with the pool.

    Only the last one counts: transfers of one direction touch shared blocks or slots in the order in which they were
    submitted.
    """

    def __init__(self, blocks: int, slots: int) -> None:
        self._block: dict[Direction, npt.NDArray[np.int64]] = {d: np.zeros(blocks, np.int64) for d in Direction}
        self._slot: dict[Direction, npt.NDArray[np.int64]] = {d: np.zeros(slots, np.int64) for d in Direction}

    def enter(
        self, direction: Direction, number: int, blocks: IdArray, slots: IdArray, oldest_in_flight: int
    ) -> Conflicts:
        """Notes transfer `number` (positive, growing) and says which others it must wait for.

        Args:
            oldest_in_flight: transfers with smaller numbers have ended and are left out.
        """
        other = Direction.LOAD if direction is Direction.STORE else Direction.STORE
        conflicts = Conflicts(
            _from(self._block[other][blocks], oldest_in_flight), _from(self._slot[other][slots], oldest_in_flight)
        )
        self._block[direction][blocks] = number
        self._slot[direction][slots] = number
        return conflicts


def _from(numbers: npt.NDArray[np.int64], oldest: int) -> tuple[int, ...]:
    return tuple(np.unique(numbers[(numbers > 0) & (numbers >= oldest)]).tolist())
