"""The host tier: which blocks are in the pool, whose they are, and who gives up room for whom.

The pool belongs to programs. A program keeps a prefix of its context: its blocks are dropped from the tail, so what is
left is always usable. A block that several programs begin with is kept once, for as long as one of them keeps it. Room
for a program's blocks comes from programs that are worth less (`Program.worth`), never from others, and never from
blocks that a transfer uses.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from autellix_engine.swap.tier.programs import Call, Key, Program, Standing, common_blocks, digests
from autellix_engine.swap.tier.shelf import Shelf
from autellix_engine.swap.tier.slots import SlotTable, Status

#: Weight of the newest gap in a program's own estimate, and in the one over all programs.
_OWN_WEIGHT: Final = 0.5
_COMMON_WEIGHT: Final = 0.1


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Blocks to store: ``keys[i]`` goes into ``slots[i]``.

    ``again_from``: number of the call's block from which on it may be asked again, in another step; None if what is
    left out has no room.
    """

    keys: list[Key]
    slots: list[int]
    again_from: int | None = None


class HostTier:
    """See the module's text. Times are seconds on any clock that never goes back."""

    def __init__(self, slots: int, *, remembered_programs: int = 10_000) -> None:
        """``remembered_programs``: idle programs without blocks whose gaps and known contexts are remembered."""
        self.slots: Final = slots
        self.counts: Final[Counter[str]] = Counter()
        """Since the start: evicted_{ended,idle,active}, freed_ended, refused_room, refused_hole, failed_{stores,loads}
        (blocks all of them)."""
        self._table = SlotTable(slots)
        self._shelf = Shelf()
        self._programs: dict[str, Program] = {}
        self._blank: OrderedDict[Program, None] = OrderedDict()  # idle, without blocks
        self._remembered = remembered_programs
        self._gap: float | None = None

    # ---- what can be seen

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return self._table.free

    @property
    def in_transfer(self) -> int:
        """Slots that a transfer reads or writes."""
        return self._table.in_transfer

    def held(self) -> dict[Standing, int]:
        """Blocks that programs keep, by what the programs do; one that several keep counts for each. For metrics: it
        looks at all programs."""
        held = dict.fromkeys(Standing, 0)
        for program in self._programs.values():
            held[program.standing] += len(program.blocks)
        return held

    def program(self, name: str) -> Program | None:
        """The program, if it is known."""
        return self._programs.get(name)

    def status(self, key: Key) -> Status:
        """Whether the block can be loaded."""
        return self._table.status(key)

    def kept_blocks(self, call: Call) -> int:
        """Blocks of the call from the first on that are in the pool or on their way there. Costs O(log blocks): what a
        program keeps has no holes."""
        low, high = 0, len(call.chain)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if call.chain[middle - 1] in self._table else (low, middle - 1)
        return low

    def known_blocks(self, call: Call, keys: list[Key]) -> int:
        """Blocks at the beginning of ``keys`` that the program's last call had too."""
        return common_blocks(call.program.trail, digests(keys))

    def due(self, since: float, until: float) -> list[Program]:
        """Idle programs whose next call is expected in that time, the first due first, without those whose context was
        brought back already, and those that have no gap of their own yet."""
        return [each for each in self._shelf.due(since, until) if not each.brought_back and each.gap is not None]

    def context(self, program: Program) -> list[Key]:
        """Blocks that the program keeps and that can be loaded, parents before children, up to the first that
        cannot."""
        keys: list[Key] = []
        for slot in program.blocks:
            key = self._table.key(slot)
            if key is None or self._table.status(key) is not Status.READY:
                break
            keys.append(key)
        return keys

    # ---- programs and calls

    def arrive(self, call_id: str, program_id: str, now: float, *, level: int = 0, transient: bool = False) -> Call:
        """A call of the program arrives. ``transient``: it is all there is of its program."""
        program = self._programs.get(program_id)
        if program is None or program.ended:  # who is ended and called again starts anew
            program = self._programs[program_id] = Program(program_id, transient)
        elif not program.calls:
            self._blank.pop(program, None)
            self._learn_gap(program, max(0.0, now - program.idle_since))
        call = Call(call_id, program, level)
        program.calls.add(call)
        self._shelf.put(program)
        return call

    def waits(self, call: Call, level: int) -> None:
        """The call lost its slot of the engine."""
        call.waits, call.level = True, level
        self._shelf.put(call.program)

    def runs(self, call: Call) -> None:
        """The call got a slot of the engine."""
        if call.waits:
            call.waits = False
            self._shelf.put(call.program)

    def leave(self, call: Call, now: float) -> None:
        """The call is over; no more of it will be stored or loaded. Transfers may still run."""
        program = call.program
        program.calls.discard(call)
        if call.chain:
            program.trail = digests(call.chain)
        if program.calls:
            self._shelf.put(program)
            return
        if program.ended:
            self._forget(program)
            return
        program.idle_since, program.brought_back = now, False
        program.due = now + (program.gap if program.gap is not None else self._gap or 0.0)
        self._settle(program)

    def end(self, program_id: str) -> None:
        """The program is over: what it keeps is free at once, or when the last of its calls has left."""
        program = self._programs.get(program_id)
        if program is None:
            return
        program.ended = True
        if program.calls:
            self._shelf.put(program)
        else:
            self._forget(program)

    # ---- blocks

    def plan_store(self, call: Call, first: int, keys: Sequence[Key], now: float, limit: int) -> StorePlan:
        """Which of the call's blocks are to be stored, and where. The blocks are protected until `stored`.

        Args:
            first: number of the first of them; earlier ones were offered before.
            keys: consecutive blocks. Those that are in the pool already are kept for this program from now on.
            limit: most blocks to store now.
        """
        keys = list(keys)
        hole = first > len(call.chain) or (first > 0 and call.chain[first - 1] not in self._table)
        del call.chain[first:]
        call.chain += keys
        if hole:  # nobody could use what comes after it
            self.counts["refused_hole"] += len(keys)
            return StorePlan([], [])
        places = self._table.places(keys)
        known = [slot for slot in places if slot is not None]
        self._table.keep(call.program.blocks, known)
        missing = [key for key, slot in zip(keys, places, strict=True) if slot is None] if known else keys
        wanted = missing[:limit]
        granted = wanted[: self._make_room(len(wanted), call.program, now)]
        self.counts["refused_room"] += len(wanted) - len(granted)
        placed = {}
        if granted:
            position = first + keys.index(granted[0])
            before = call.chain[position - 1] if position else None
            placed = self._table.fill(call.program.blocks, granted, before)
            call.storing.update(placed)
            call.moved_blocks += len(placed)
        self._settle(call.program)
        put_off = len(granted) == len(wanted) < len(missing)
        return StorePlan(granted, list(placed.values()), first + keys.index(missing[limit]) if put_off else None)

    def stored(self, call: Call, keys: Collection[Key], *, ok: bool) -> None:
        """A store of these blocks has ended."""
        for key in keys:
            self._table.end_store(call.storing.pop(key), ok=ok)
        if not ok:
            self.counts["failed_stores"] += len(keys)
            self._cut(call, keys)

    def plan_load(self, call: Call, keys: Sequence[Key]) -> list[int]:
        """Slots to load the blocks from, all of which are READY. They are protected until `loaded`."""
        slots = self._table.begin_load(keys)
        call.loading.update(zip(keys, slots, strict=True))
        call.moved_blocks += len(slots)
        return slots

    def loaded(self, call: Call, keys: Collection[Key], *, ok: bool) -> None:
        """A load of these blocks has ended."""
        for key in keys:
            self._table.end_load(call.loading.pop(key), ok=ok)
        if not ok:
            self.counts["failed_loads"] += len(keys)
            self._cut(call, keys)

    def clear(self) -> None:
        """Everything leaves the pool. The ends of transfers in flight will not be told: vLLM waits for them, and the
        swap engine orders what uses their slots next."""
        self._table.clear()
        for program in list(self._programs.values()):
            for call in program.calls:
                call.storing.clear()
                call.loading.clear()
            self._table.drop(program.blocks, list(program.blocks))
            self._settle(program)

    # ---- parts of the above

    def _learn_gap(self, program: Program, gap: float) -> None:
        program.gap = gap if program.gap is None else program.gap + _OWN_WEIGHT * (gap - program.gap)
        self._gap = gap if self._gap is None else self._gap + _COMMON_WEIGHT * (gap - self._gap)

    def _make_room(self, wanted: int, program: Program, now: float) -> int:
        """Lets programs of less worth drop their tails until ``wanted`` slots are free. Returns how many there are, at
        most ``wanted``."""
        passed_over: set[Program] = set()
        mine = program.worth(now)
        while self._table.free < wanted:
            victim = self._shelf.next_to_leave(now, passed_over)
            if victim is None or victim.worth(now) >= mine:
                break
            reason = f"evicted_{victim.standing.name.lower()}"
            self.counts[reason] += self._table.drop_tail(victim.blocks, wanted - self._table.free)
            if victim.blocks:  # its tail is in a transfer, or there is room enough
                passed_over.add(victim)
            self._settle(victim)
        return min(wanted, self._table.free)

    def _cut(self, call: Call, failed: Collection[Key]) -> None:
        """After a failure the call's deeper blocks are of no use: they leave the pool too, so that the next time all of
        them are stored again in order. The program lets go of what cannot be loaded any more."""
        gone = set(failed)
        first = next((i for i, key in enumerate(call.chain) if key in gone), len(call.chain))
        for slot in self._table.places(call.chain[first:]):
            if slot is not None:
                self._table.unlist(slot)
        program = call.program
        self._table.drop(program.blocks, [slot for slot in program.blocks if self._table.key(slot) is None])
        self._settle(program)

    def _settle(self, program: Program) -> None:
        """Puts the program where it belongs, or forgets it where nothing of it is left to remember."""
        self._shelf.put(program)
        if program.calls or program.blocks:
            return
        if program.ended or program.transient:
            self._forget(program)
            return
        self._blank[program] = None
        self._blank.move_to_end(program)
        while len(self._blank) > self._remembered:
            oldest, _ = self._blank.popitem(last=False)
            self._programs.pop(oldest.id, None)

    def _forget(self, program: Program) -> None:
        if program.ended:
            self.counts["freed_ended"] += len(program.blocks)
        self._table.drop(program.blocks, list(program.blocks))
        self._shelf.take(program)
        self._blank.pop(program, None)
        if self._programs.get(program.id) is program:
            del self._programs[program.id]

    # ---- for tests

    def check_integrity(self) -> None:
        """Raises AssertionError if the state contradicts itself. Looks at everything: for tests."""
        self._table.check_integrity(Counter(slot for program in self._programs.values() for slot in program.blocks))
        for program in self._programs.values():
            assert program.calls or program.blocks or program in self._blank
