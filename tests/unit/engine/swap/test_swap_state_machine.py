"""Any sequence of calls, transfers, failures and ends, against a device that remembers what was written where.

What counts is told by the bytes: a block that can be loaded holds its own bytes, and a slot is never written while a
transfer uses it.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autellix_engine.swap.tier.programs import Call, Key, Standing
from autellix_engine.swap.tier.slots import Status
from autellix_engine.swap.tier.tier import HostTier

PROGRAMS = ("p", "q", "r")
DEPTH = 8


@dataclass
class Open:
    """What the model knows of a call: its context, and its transfers in flight."""

    call: Call
    keys: list[Key]
    stores: list[dict[Key, int]] = field(default_factory=list)
    load: dict[Key, int] | None = None
    computed: int = 0
    left: bool = False


class TierMachine(RuleBasedStateMachine):
    """Programs share the first blocks of their contexts and branch from there."""

    @initialize(slots=st.integers(0, 14))
    def start(self, slots: int) -> None:
        self.tier = HostTier(slots, remembered_programs=2)
        self.bytes: dict[int, Key | None] = dict.fromkeys(range(slots))
        self.now = 0.0
        self.calls: list[Open] = []
        self.names = 0

    def open_calls(self) -> list[Open]:
        return [each for each in self.calls if not each.left]

    def busy_slots(self) -> set[int]:
        written = {slot for each in self.calls for store in each.stores for slot in store.values()}
        return written | {slot for each in self.calls for slot in (each.load or {}).values()}

    @rule(
        program=st.sampled_from(PROGRAMS),
        branch=st.sampled_from("xy"),
        shared=st.integers(0, 3),
        level=st.integers(0, 2),
        transient=st.booleans(),
    )
    def arrive(self, program: str, branch: str, shared: int, level: int, transient: bool) -> None:
        self.names += 1
        name = f"call:{self.names}" if transient else program
        keys = [Key(f"shared{i}".encode()) for i in range(shared)]
        keys += [Key(f"{program}{branch}{i}".encode()) for i in range(shared, DEPTH)]
        call = self.tier.arrive(f"{self.names}", name, self.now, level=level, transient=transient)
        self.calls.append(Open(call, keys))

    @precondition(lambda self: any(not each.load for each in self.open_calls()))
    @rule(data=st.data(), more=st.integers(1, 4), again=st.booleans(), limit=st.sampled_from([0, 1, 3, 100]))
    def store(self, data: st.DataObject, more: int, again: bool, limit: int) -> None:
        each = data.draw(st.sampled_from([each for each in self.open_calls() if not each.load]))
        first = 0 if again else each.computed
        each.computed = min(DEPTH, each.computed + more)
        keys = each.keys[first : each.computed]
        if not keys:
            return
        busy, worth = self.busy_slots(), each.call.program.worth(self.now)
        better = {
            slot
            for other in self.calls
            if other.call.program is not each.call.program and other.call.program.worth(self.now) >= worth
            for slot in other.call.program.blocks
        }
        plan = self.tier.plan_store(each.call, first, keys, self.now, limit)
        assert len(plan.keys) == len(plan.slots) <= limit
        assert not busy & set(plan.slots), "a slot in a transfer was given away"
        assert not better & set(plan.slots), "a program of more worth made room"
        assert plan.keys == [key for key in keys if key in plan.keys], "in order"
        if plan.again_from is not None:
            assert first <= plan.again_from < each.computed
        if plan.keys:
            placed = dict(zip(plan.keys, plan.slots, strict=True))
            each.stores.append(placed)
            self.bytes |= dict.fromkeys(placed.values())  # half written from now on

    @precondition(lambda self: any(each.stores for each in self.calls))
    @rule(data=st.data(), ok=st.sampled_from([True, True, True, False]))
    def end_store(self, data: st.DataObject, ok: bool) -> None:
        each = data.draw(st.sampled_from([each for each in self.calls if each.stores]))
        placed = each.stores.pop(data.draw(st.integers(0, len(each.stores) - 1)))
        if ok:
            self.bytes |= {slot: key for key, slot in placed.items()}
        self.tier.stored(each.call, set(placed), ok=ok)

    @precondition(lambda self: any(not (each.load or each.stores) for each in self.open_calls()))
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from([each for each in self.open_calls() if not (each.load or each.stores)]))
        hits = 0
        while hits < DEPTH and self.tier.status(each.keys[hits]) is Status.READY:
            hits += 1
        keys = each.keys[data.draw(st.integers(0, hits)) : hits]
        if keys:
            each.load = dict(zip(keys, self.tier.plan_load(each.call, keys), strict=True))

    @precondition(lambda self: any(each.load for each in self.calls))
    @rule(data=st.data(), ok=st.sampled_from([True, True, False]))
    def end_load(self, data: st.DataObject, ok: bool) -> None:
        each = data.draw(st.sampled_from([each for each in self.calls if each.load]))
        assert each.load is not None
        for key, slot in each.load.items():
            assert self.bytes[slot] == key, "other bytes were loaded"
        self.tier.loaded(each.call, set(each.load), ok=ok)
        each.load = None

    @precondition(lambda self: self.open_calls())
    @rule(data=st.data(), waits=st.booleans(), level=st.integers(0, 2))
    def move(self, data: st.DataObject, waits: bool, level: int) -> None:
        each = data.draw(st.sampled_from(self.open_calls()))
        if waits:
            self.tier.waits(each.call, level)
        else:
            self.tier.runs(each.call)

    @precondition(lambda self: self.open_calls())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.open_calls()))
        self.tier.leave(each.call, self.now)
        each.left = True

    @rule(program=st.sampled_from(PROGRAMS))
    def end(self, program: str) -> None:
        before = self.tier.program(program)
        self.tier.end(program)
        if before is not None and not before.calls:
            assert before.blocks == {}

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        if hasattr(self, "tier"):
            self.tier.check_integrity()
            for key in {key for each in self.calls for key in each.keys}:
                if self.tier.status(key) is Status.READY:
                    assert key in self.bytes.values(), "a block can be loaded that was never written"

    def teardown(self) -> None:
        """When all calls have left, all transfers ended and all programs are over, only what nobody ended is kept."""
        if not hasattr(self, "tier"):
            return
        for each in self.calls:
            if not each.left:
                self.tier.leave(each.call, self.now)
            for store in each.stores:
                self.tier.stored(each.call, set(store), ok=True)
            if each.load:
                self.tier.loaded(each.call, set(each.load), ok=True)
        for program in PROGRAMS:
            self.tier.end(program)
        self.tier.check_integrity()
        assert self.tier.in_transfer == 0
        held = self.tier.held()
        assert held[Standing.IDLE] == held[Standing.ACTIVE] == 0
        for i in range(self.names):
            self.tier.end(f"call:{i + 1}")
        assert self.tier.free == self.tier.slots, "a leak"


TestTier = TierMachine.TestCase
TestTier.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
