"""The host tier: who keeps what, and who makes room for whom."""

from collections.abc import Sequence

import pytest

from autellix_engine.swap.tier.programs import Call, Key, Program, Standing
from autellix_engine.swap.tier.slots import Status
from autellix_engine.swap.tier.tier import HostTier

PLENTY = 10**9


def context(name: str, blocks: int, start: int = 0) -> list[Key]:
    return [Key(f"{name:_<12}{i:06}".encode()) for i in range(start, start + blocks)]


def store(tier: HostTier, call: Call, keys: Sequence[Key], now: float, first: int = 0) -> int:
    """Stores what is new of these blocks; returns how many."""
    plan = tier.plan_store(call, first, keys, now, PLENTY)
    tier.stored(call, plan.keys, ok=True)
    tier.check_integrity()
    return len(plan.keys)


def visit(tier: HostTier, program: str, blocks: int, now: float, until: float) -> int:
    """A call of the program with a context of so many blocks; returns how many of them were in the pool already."""
    call = tier.arrive(f"{program} at {now}", program, now)
    tier.runs(call)
    keys = context(program, blocks)
    found = ready(tier, keys)
    store(tier, call, keys, now)
    tier.leave(call, until)
    tier.check_integrity()
    return found


def ready(tier: HostTier, keys: Sequence[Key]) -> int:
    """Blocks from the beginning that can be loaded."""
    return next((i for i, key in enumerate(keys) if tier.status(key) is not Status.READY), len(keys))


def test_a_block_can_be_loaded_once_its_store_has_ended() -> None:
    tier = HostTier(8)
    call = tier.arrive("c", "p", 0.0)
    keys = context("p", 3)
    assert tier.status(keys[0]) is Status.ABSENT
    plan = tier.plan_store(call, 0, keys, 0.0, PLENTY)
    assert tier.status(keys[0]) is Status.PENDING
    tier.stored(call, plan.keys, ok=True)
    assert tier.status(keys[0]) is Status.READY
    assert tier.plan_load(call, keys) == plan.slots


def test_only_what_is_new_is_written() -> None:
    tier = HostTier(8)
    call = tier.arrive("c", "p", 0.0)
    assert store(tier, call, context("p", 3), 0.0) == 3
    assert store(tier, call, context("p", 5), 1.0) == 2


def test_the_blocks_of_a_call_lie_side_by_side() -> None:
    tier = HostTier(100)
    calls = [tier.arrive(f"c{i}", f"p{i}", 0.0) for i in range(3)]
    slots: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for block in range(12):
        for i, call in enumerate(calls):
            plan = tier.plan_store(call, block, context(f"p{i}", 1, block), 0.0, PLENTY)
            slots[i] += plan.slots
    for run in slots.values():
        assert run == list(range(run[0], run[0] + 12))


def test_a_program_that_ends_frees_its_blocks_at_once() -> None:
    tier = HostTier(8)
    visit(tier, "p", 5, 0.0, 1.0)
    tier.end("p")
    assert tier.free == 8
    assert tier.program("p") is None
    assert tier.counts["freed_ended"] == 5


def test_a_program_that_ends_while_a_call_runs_frees_its_blocks_with_the_call() -> None:
    tier = HostTier(8)
    call = tier.arrive("c", "p", 0.0)
    store(tier, call, context("p", 5), 0.0)
    tier.end("p")
    assert tier.free == 3
    tier.leave(call, 1.0)
    tier.check_integrity()
    assert tier.free == 8


def test_a_program_called_again_after_its_end_is_another_one() -> None:
    tier = HostTier(8)
    old = tier.arrive("c", "p", 0.0)
    store(tier, old, context("p", 2), 0.0)
    tier.end("p")
    new = tier.arrive("d", "p", 1.0)
    store(tier, new, context("p", 3), 1.0)
    tier.leave(old, 2.0)
    assert ready(tier, context("p", 3)) == 3
    tier.leave(new, 3.0)
    assert tier.free == 5


def test_what_two_programs_share_stays_until_both_have_ended() -> None:
    tier = HostTier(8)
    for name in ("p", "q"):
        call = tier.arrive(name, name, 0.0)
        store(tier, call, context("shared", 2) + context(name, 1), 0.0)
        tier.leave(call, 1.0)
    assert tier.free == 4
    tier.end("p")
    assert ready(tier, context("shared", 2)) == 2
    tier.end("q")
    assert tier.free == 8


def test_ended_programs_make_room_before_any_other() -> None:
    tier = HostTier(10)
    call = tier.arrive("once", "call:once", 0.0, transient=True)
    store(tier, call, context("once", 4), 0.0)
    tier.leave(call, 10.0)
    visit(tier, "idle", 4, 0.0, 1.0)
    visit(tier, "new", 6, 20.0, 21.0)
    assert ready(tier, context("idle", 4)) == 4
    assert ready(tier, context("once", 4)) == 0
    assert tier.counts["evicted_ended"] == 4
    assert tier.held()[Standing.IDLE] == 10


def test_without_known_gaps_the_program_idle_longest_makes_room_from_its_tail() -> None:
    tier = HostTier(10)
    visit(tier, "a", 5, 0.0, 1.0)
    visit(tier, "b", 5, 2.0, 3.0)
    visit(tier, "c", 2, 4.0, 5.0)
    assert ready(tier, context("a", 5)) == 3
    assert ready(tier, context("b", 5)) == 5


def test_a_program_that_is_due_soon_is_kept_before_one_that_has_just_left_for_long() -> None:
    tier = HostTier(10)
    for now in (0.0, 100.0):
        visit(tier, "slow", 4, now, now + 1)  # comes every 99 seconds
    for now in (100.0, 105.0, 110.0):
        visit(tier, "quick", 4, now, now + 1)  # every 4
    visit(tier, "new", 4, 114.0, 115.0)  # quick is due at 115, slow at 200
    assert ready(tier, context("quick", 4)) == 4
    assert ready(tier, context("slow", 4)) == 2


def test_a_program_long_overdue_leaves_before_one_that_is_due_later() -> None:
    tier = HostTier(10)
    for now in (0.0, 5.0, 10.0):
        visit(tier, "quick", 4, now, now + 1)
    for now in (0.0, 900.0):
        visit(tier, "slow", 4, now, now + 1)
    visit(tier, "new", 4, 1_000.0, 1_001.0)  # quick was due at 15, slow is due at 1,800
    assert ready(tier, context("slow", 4)) == 4
    assert ready(tier, context("quick", 4)) == 2


def test_programs_with_calls_make_room_last_and_those_that_wait_after_those_that_run() -> None:
    tier = HostTier(12)
    waiting, low, high = (tier.arrive(n, n, 0.0, level=level) for n, level in (("w", 3), ("low", 2), ("high", 1)))
    for call in (waiting, low, high):
        store(tier, call, context(call.id, 4), 0.0)
    tier.runs(low)
    tier.runs(high)
    best = tier.arrive("best", "best", 1.0, level=0)
    tier.runs(best)
    assert store(tier, best, context("best", 6), 1.0) == 6
    assert [ready(tier, context(n, 4)) for n in ("w", "low", "high")] == [4, 0, 2]
    assert tier.counts["evicted_active"] == 6


def test_nobody_makes_room_for_a_program_worth_no_more_and_what_is_left_out_is_the_tail() -> None:
    tier = HostTier(6)
    first, second = (tier.arrive(n, n, 0.0) for n in "ab")
    for call in (first, second):
        tier.runs(call)
    store(tier, first, context("a", 4), 0.0)
    assert store(tier, second, context("b", 4), 0.0) == 2
    assert ready(tier, context("b", 4)) == 2
    assert tier.counts["refused_room"] == 2
    assert store(tier, second, context("b", 1, 4), 1.0, first=4) == 0, "nobody could use a block after a hole"
    assert tier.counts["refused_hole"] == 1


def test_a_block_in_a_transfer_is_not_evicted_and_neither_is_what_stands_before_it() -> None:
    tier = HostTier(6)
    visit(tier, "a", 5, 0.0, 1.0)
    reader = tier.arrive("reader", "b", 2.0)
    tier.plan_load(reader, context("a", 5)[4:])
    other = tier.arrive("other", "c", 3.0)
    assert store(tier, other, context("c", 4), 3.0) == 1
    tier.loaded(reader, context("a", 5)[4:], ok=True)
    assert store(tier, other, context("c", 4), 4.0) == 3
    assert ready(tier, context("a", 5)) == 2


def test_a_slot_in_a_transfer_is_free_only_when_the_transfer_has_ended() -> None:
    tier = HostTier(4)
    call = tier.arrive("c", "p", 0.0)
    plan = tier.plan_store(call, 0, context("p", 4), 0.0, PLENTY)
    tier.end("p")
    tier.leave(call, 1.0)
    tier.check_integrity()
    assert tier.free == 0
    assert tier.status(plan.keys[0]) is Status.ABSENT
    tier.stored(call, plan.keys, ok=True)
    tier.check_integrity()
    assert tier.free == 4
    assert tier.status(plan.keys[0]) is Status.ABSENT


def test_a_slot_that_two_loads_read_is_free_when_both_have_ended() -> None:
    tier = HostTier(2)
    keys = context("p", 2)
    owner, reader = tier.arrive("c", "p", 0.0), tier.arrive("d", "q", 0.0)
    store(tier, owner, keys, 0.0)
    for call in (owner, reader):
        tier.plan_load(call, keys)
    tier.end("p")
    tier.leave(owner, 1.0)
    for call, free in ((owner, 0), (reader, 2)):
        tier.loaded(call, keys, ok=True)
        tier.check_integrity()
        assert (tier.free, tier.in_transfer) == (free, 2 - free)


@pytest.mark.parametrize("failing", ["store", "load"])
def test_after_a_failure_the_blocks_from_there_on_are_gone_and_are_stored_again(failing: str) -> None:
    tier = HostTier(8)
    call = tier.arrive("c", "p", 0.0)
    keys = context("p", 6)
    store(tier, call, keys[:2], 0.0)
    plan = tier.plan_store(call, 2, keys[2:4], 0.0, PLENTY)
    tier.stored(call, plan.keys, ok=failing != "store")
    store(tier, call, keys[4:], 0.0, first=4)
    if failing == "load":
        tier.plan_load(call, keys[2:])
        tier.loaded(call, keys[2:], ok=False)
    tier.check_integrity()
    assert ready(tier, keys) == 2
    assert tier.free == 6
    assert store(tier, call, keys, 1.0) == 4
    assert ready(tier, keys) == 6


def test_a_step_stores_no_more_than_its_limit_and_says_where_to_go_on() -> None:
    tier = HostTier(20)
    call = tier.arrive("c", "p", 0.0)
    keys = context("p", 10)
    store(tier, call, keys[:3], 0.0)
    plan = tier.plan_store(call, 0, keys, 1.0, 4)
    assert (plan.keys, plan.again_from) == (keys[3:7], 7)
    tier.stored(call, plan.keys, ok=True)
    assert tier.plan_store(call, 7, keys[7:], 2.0, 4).again_from is None


def test_what_the_next_call_could_know_is_what_it_shares_with_the_last_one() -> None:
    tier = HostTier(4)
    visit(tier, "p", 7, 0.0, 1.0)  # more than the pool holds: known all the same
    call = tier.arrive("next", "p", 2.0)
    for shared in range(8):
        assert tier.known_blocks(call, context("p", shared) + context("other", 3)) == shared
    assert tier.known_blocks(tier.arrive("x", "q", 2.0), context("p", 7)) == 0


def test_of_programs_without_blocks_only_the_newest_are_remembered() -> None:
    tier = HostTier(0, remembered_programs=2)
    for i, name in enumerate("abc"):
        visit(tier, name, 1, float(i), i + 0.5)
    assert [tier.program(name) is not None for name in "abc"] == [False, True, True]


def test_everything_can_be_dropped_while_transfers_run() -> None:
    tier = HostTier(8)
    call = tier.arrive("c", "p", 0.0)
    store(tier, call, context("p", 2), 0.0)
    tier.plan_load(call, context("p", 2))
    tier.plan_store(call, 2, context("p", 2, 2), 0.0, PLENTY)
    tier.clear()
    tier.check_integrity()
    assert (tier.free, tier.in_transfer) == (8, 0)
    assert store(tier, call, context("p", 4), 1.0) == 4


def test_programs_that_are_due_are_brought_back_once_and_parents_first() -> None:
    tier = HostTier(20)
    for now in (0.0, 10.0):
        visit(tier, "regular", 4, now, now + 1)  # due at 20
    visit(tier, "new", 4, 11.0, 12.0)
    assert tier.due(0.0, 19.0) == []
    (program,) = tier.due(15.0, 25.0)
    assert program.id == "regular"
    assert tier.context(program) == context("regular", 4)
    program.brought_back = True
    assert tier.due(15.0, 25.0) == []
    visit(tier, "regular", 5, 20.0, 21.0)
    assert [each.id for each in tier.due(25.0, 35.0)] == ["regular"]


def test_a_context_ends_before_a_block_that_cannot_be_loaded() -> None:
    tier = HostTier(20)
    call = tier.arrive("c", "p", 0.0)
    store(tier, call, context("p", 3), 0.0)
    tier.plan_store(call, 3, context("p", 2, 3), 0.0, PLENTY)
    assert tier.context(call.program) == context("p", 3)


def test_a_program_that_makes_room_leaves_to_others_what_they_share() -> None:
    tier = HostTier(10)
    for i, name in enumerate(("leaves", "stays")):
        call = tier.arrive(name, name, float(i))
        store(tier, call, context("shared", 2) + context(name, 2), float(i))
        tier.leave(call, i + 0.5)
    visit(tier, "new", 7, 5.0, 6.0)  # three more than are free: two of its own, and one of the next program's
    assert ready(tier, context("shared", 2) + context("stays", 2)) == 3
    assert ready(tier, context("new", 7)) == 7
    assert tier.counts["evicted_idle"] == 3


def test_blocks_whose_load_failed_before_any_was_offered_are_gone_too() -> None:
    tier = HostTier(8)
    visit(tier, "p", 4, 0.0, 1.0)
    call = tier.arrive("again", "p", 2.0)
    tier.plan_load(call, context("p", 4))
    tier.loaded(call, context("p", 4), ok=False)
    tier.check_integrity()
    assert ready(tier, context("p", 4)) == 0
    assert tier.free == 8


def test_of_two_idle_programs_the_one_farther_from_its_moment_is_worth_less() -> None:
    def idle(due: float) -> Program:
        return Program("p", transient=False, due=due)

    assert idle(due=100.0).worth(now=50.0) < idle(due=60.0).worth(now=50.0)
    assert idle(due=10.0).worth(now=50.0) < idle(due=45.0).worth(now=50.0)
    assert idle(due=0.0).worth(now=50.0) == idle(due=100.0).worth(now=50.0)
