"""How long calls wait, as pure decisions over a clock."""

from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.gateway.patience import Patience, Wait

PATIENCE = Patience(room_seconds=30, engine_seconds=300)


def test_with_engines_a_call_waits_for_room_from_the_moment_it_joins_the_queue() -> None:
    wait = Wait(came=5)
    wait.sees(7, engine=True)
    assert not wait.held
    assert (wait.over(36.9, PATIENCE), wait.over(37, PATIENCE)) == (False, True)


def test_without_engines_a_call_is_held_from_its_arrival_on() -> None:
    wait = Wait(came=5)
    wait.sees(7, engine=False)
    assert wait.held
    assert (wait.over(304.9, PATIENCE), wait.over(305, PATIENCE)) == (False, True)


def test_the_time_that_a_call_was_held_is_not_taken_from_its_time_to_wait_for_room() -> None:
    wait = Wait(came=0)
    wait.sees(0, engine=False)
    wait.sees(299, engine=True)
    wait.sees(310, engine=True)
    assert not wait.held
    assert (wait.over(328.9, PATIENCE), wait.over(329, PATIENCE)) == (False, True)


def test_the_time_for_room_counts_for_a_call_that_loses_its_engines() -> None:
    wait = Wait(came=0)
    wait.sees(0, engine=True)
    wait.sees(20, engine=False)
    assert (wait.over(299, PATIENCE), wait.over(300, PATIENCE)) == (False, True)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=40))
def test_engines_that_come_and_go_do_not_prolong_a_wait_for_ever(spells: list[tuple[int, bool]]) -> None:
    wait, now = Wait(came=0), 0
    for seconds, engine in [*spells, (1000, True)]:
        for _ in range(seconds):
            wait.sees(now, engine=engine)
            if wait.over(now, PATIENCE):
                assert now <= PATIENCE.engine_seconds + PATIENCE.room_seconds
                return
            now += 1
    raise AssertionError("it waits for ever")
