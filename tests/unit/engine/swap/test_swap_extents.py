"""Free slots: blocks of a call lie side by side for as long as there is room, and nothing is lost or given twice."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_engine.swap.tier.extents import FreeSlots


def test_a_call_gets_one_run_and_grows_in_place() -> None:
    free = FreeSlots(1_000)
    (first,) = free.take(100)
    (more,) = free.take(20, after=first[-1])
    assert more == range(first.stop, first.stop + 20)


def test_calls_that_grow_in_turn_stay_in_one_run_each() -> None:
    free = FreeSlots(1_000)
    tails = [free.take(20)[-1][-1] for _ in range(4)]
    pieces = [0] * 4
    for _ in range(40):
        for call in range(4):
            taken = free.take(1, after=tails[call])
            pieces[call] += taken[0][0] != tails[call] + 1
            tails[call] = taken[-1][-1]
    assert pieces == [0] * 4


def test_a_run_that_is_too_short_is_used_up_before_another_is_begun() -> None:
    free = FreeSlots(10)
    free.take(10)
    free.give_back_run(range(7, 9))
    free.give_back_run(range(2, 5))
    assert free.take(5) == [range(2, 5), range(7, 9)]


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(ValueError, match="5 slots wanted, 4 are free"):
        FreeSlots(4).take(5)


@given(slots=st.integers(0, 60), seed=st.integers(0, 2**32))
def test_slots_are_neither_lost_nor_given_twice(slots: int, seed: int) -> None:
    rng = random.Random(seed)
    free = FreeSlots(slots)
    taken: list[int] = []
    for _ in range(60):
        if rng.random() < 0.6:
            after = rng.choice([*taken, None])
            count = rng.randint(0, min(free.free, 9))
            new = [slot for piece in free.take(count, after) for slot in piece]
            assert len(new) == count
            assert not set(new) & set(taken)
            if count and after is not None and after + 1 not in taken and after + 1 < slots:
                assert new[0] == after + 1
            taken += new
        else:
            back = rng.sample(taken, rng.randint(0, len(taken)))
            taken = [slot for slot in taken if slot not in back]
            for slot in back:
                free.give_back_run(range(slot, slot + 1))
        free.check_integrity()
        assert free.free == slots - len(taken)
    assert sorted(slot for run in free.runs() for slot in run) == sorted(set(range(slots)) - set(taken))
