"""The slots of the pool: which block is in each, how many programs keep it, and which transfers use it.

Rules for the bytes, enforced here:

1. A slot is read only after its store has ended well (`Status.READY`).
2. A slot that a transfer reads or writes is not given to another block before the transfer has ended, whatever happens
   to its owners meanwhile.
3. A transfer that failed takes its blocks out of the pool: nobody finds them again.

A program's blocks are a dict of slots, used as an ordered set: parents before children, so that the last one is the
tail.
"""

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from autellix_engine.swap.tier.extents import FreeSlots
from autellix_engine.swap.tier.programs import Key

Blocks: TypeAlias = dict[int, None]


class Status(enum.Enum):
    """Whether a block can be loaded."""

    ABSENT = 0
    PENDING = 1
    """On its way into the pool."""
    READY = 2


class SlotTable:
    """See the module's text. Costs grow with the blocks that an operation concerns, not with the pool."""

    def __init__(self, slots: int) -> None:
        self.slots: Final = slots
        self.in_transfer = 0
        """Slots that a transfer reads or writes."""
        self._free = FreeSlots(slots)
        self._slot_of: dict[Key, int] = {}
        self._key_of: list[Key | None] = [None] * slots
        self._owners = [0] * slots
        self._readers = [0] * slots
        self._written = bytearray(slots)  # 1: a store is writing it

    # ---- what can be seen

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return self._free.free

    def __contains__(self, key: Key) -> bool:
        """Whether the block is in the pool or on its way there."""
        return key in self._slot_of

    def places(self, keys: Iterable[Key]) -> list[int | None]:
        """The slot of each block; None for one that is not in the pool."""
        return list(map(self._slot_of.get, keys))

    def key(self, slot: int) -> Key | None:
        """The block in the slot; None if nobody can find it any more."""
        return self._key_of[slot]

    def status(self, key: Key) -> Status:
        """Whether the block can be loaded."""
        slot = self._slot_of.get(key)
        if slot is None:
            return Status.ABSENT
        return Status.PENDING if self._written[slot] else Status.READY

    # ---- what programs keep

    def fill(self, blocks: Blocks, keys: Sequence[Key], before: Key | None) -> dict[Key, int]:
        """Gives free slots to new blocks, which a store writes from now on: behind the block before them if that can
        be. They come to the tail of ``blocks``."""
        slots: list[int] = []
        for piece in self._free.take(len(keys), None if before is None else self._slot_of.get(before)):
            run = slice(piece.start, piece.stop)
            self._key_of[run] = keys[len(slots) : len(slots) + len(piece)]
            self._written[run] = b"\x01" * len(piece)
            self._owners[run] = [1] * len(piece)
            slots += piece
        placed = dict(zip(keys, slots, strict=True))
        self._slot_of.update(placed)
        self.in_transfer += len(slots)
        blocks.update(dict.fromkeys(slots))
        return placed

    def keep(self, blocks: Blocks, slots: Iterable[int]) -> None:
        """Adds slots that others keep, too, to the tail of ``blocks``; those that are there stay where they are."""
        for slot in slots:
            if slot not in blocks:
                blocks[slot] = None
                self._owners[slot] += 1

    def drop(self, blocks: Blocks, slots: Iterable[int]) -> None:
        """These blocks are no longer kept. What nobody keeps cannot be found any more, and is free unless it is in a
        transfer."""
        for slot in slots:
            del blocks[slot]
            self._owners[slot] -= 1
            if not self._owners[slot]:
                self.unlist(slot)
                self._release(slot)

    def drop_tail(self, blocks: Blocks, wanted: int) -> int:
        """Drops blocks from the tail until so many slots are free, or one is in a transfer. Returns how many."""
        freed = 0
        while blocks and freed < wanted:
            if run := self._free_tail(blocks, wanted - freed):
                self._free_run(blocks, run)
                freed += len(run)
                continue
            slot = next(reversed(blocks))
            alone = self._owners[slot] == 1
            if alone and (self._readers[slot] or self._written[slot]):
                break
            freed += alone
            self.drop(blocks, (slot,))
        return freed

    def unlist(self, slot: int) -> None:
        """Nobody finds the block any more."""
        key = self._key_of[slot]
        if key is not None:
            del self._slot_of[key]
            self._key_of[slot] = None

    # ---- transfers

    def end_store(self, slot: int, *, ok: bool) -> None:
        """The store that was writing the slot has ended."""
        self._written[slot] = 0
        self._leave_transfer(slot, ok=ok)

    def begin_load(self, keys: Iterable[Key]) -> list[int]:
        """A load reads these blocks, all of which are READY, from now on."""
        slots = [self._slot_of[key] for key in keys]
        for slot in slots:
            self.in_transfer += not self._readers[slot]
            self._readers[slot] += 1
        return slots

    def end_load(self, slot: int, *, ok: bool) -> None:
        """A load that was reading the slot has ended."""
        self._readers[slot] -= 1
        self._leave_transfer(slot, ok=ok)

    def clear(self) -> None:
        """No block can be found any more, and no transfer counts any more: their ends will not be told. Slots are free
        once they are dropped."""
        self._slot_of.clear()
        self._key_of = [None] * self.slots
        self._readers = [0] * self.slots
        self._written = bytearray(self.slots)
        self.in_transfer = 0

    # ---- parts of the above

    def _leave_transfer(self, slot: int, *, ok: bool) -> None:
        self.in_transfer -= not (self._readers[slot] or self._written[slot])
        if not ok:
            self.unlist(slot)
        self._release(slot)

    def _release(self, slot: int) -> None:
        """Frees the slot if nobody keeps it and its last transfer has ended."""
        if not (self._owners[slot] or self._readers[slot] or self._written[slot]):
            self.unlist(slot)
            self._free.give_back_run(range(slot, slot + 1))

    def _free_tail(self, blocks: Blocks, most: int) -> range:
        """Blocks at the tail that lie side by side and can all be freed, at most so many; none if the last one is
        shared, in a transfer, or cannot be found. A program's blocks lie in few runs, and slices cost little."""
        tail = list(itertools.islice(reversed(blocks), most))
        length = len(tail)
        if tail != list(range(tail[0], tail[0] - length, -1)):
            length = next(i for i in range(1, length) if tail[i] != tail[0] - i)
        while length:
            run = slice(tail[0] + 1 - length, tail[0] + 1)
            alone = self._owners[run] == [1] * length and None not in self._key_of[run]
            if alone and not any(self._readers[run]) and not any(self._written[run]):
                break
            length //= 2
        return range(tail[0] + 1 - length, tail[0] + 1)

    def _free_run(self, blocks: Blocks, run: range) -> None:
        for _ in run:
            blocks.popitem()
        place = slice(run.start, run.stop)
        for key in self._key_of[place]:
            del self._slot_of[key]  # type: ignore[arg-type]  # none is None
        self._key_of[place] = [None] * len(run)
        self._owners[place] = [0] * len(run)
        self._free.give_back_run(run)

    # ---- for tests

    def check_integrity(self, owners: Mapping[int, int]) -> None:
        """Raises AssertionError if the state contradicts itself; ``owners``: of each slot, at least. For tests."""
        self._free.check_integrity()
        free = {slot for run in self._free.runs() for slot in run}
        busy = [bool(r or w) for r, w in zip(self._readers, self._written, strict=True)]
        for slot in range(self.slots):
            assert self._owners[slot] >= owners.get(slot, 0)
            assert (slot in free) == (not self._owners[slot] and not busy[slot]), slot
            assert self._key_of[slot] is None or self._owners[slot]
        assert {key: slot for slot, key in enumerate(self._key_of) if key is not None} == self._slot_of
        assert self.in_transfer == sum(busy)
