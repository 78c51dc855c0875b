"""The judge of histories tells possible from impossible ones."""

from support.table_history import Pin, linearizable


def test_one_winner_and_a_loser_that_learns_it() -> None:
    history = [Pin(0, 2, None, "a", "a"), Pin(1, 3, None, "b", "a")]
    assert linearizable(history, start=None, end="a")
    assert not linearizable(history, start=None, end="b")


def test_two_winners_are_impossible() -> None:
    assert not linearizable([Pin(0, 2, None, "a", "a"), Pin(1, 3, None, "b", "b")], start=None, end="b")


def test_a_move_from_where_the_pin_was_is_possible_in_its_order_only() -> None:
    history = [Pin(0, 1, None, "a", "a"), Pin(2, 3, "a", "b", "b")]
    assert linearizable(history, start=None, end="b")
    assert not linearizable([Pin(2, 3, None, "a", "a"), Pin(0, 1, "a", "b", "b")], start=None, end="b")


def test_a_stale_answer_is_impossible() -> None:
    history = [Pin(0, 1, None, "a", "a"), Pin(2, 3, "a", "b", "b"), Pin(4, 5, None, "c", "a")]
    assert not linearizable(history, start=None, end="b")


def test_an_unknown_answer_may_or_may_not_have_happened() -> None:
    unknown = Pin(0, 1, None, "a", None)
    assert linearizable([unknown], start=None, end=None)
    assert linearizable([unknown], start=None, end="a")
    assert linearizable([unknown, Pin(5, 6, "a", "b", "b")], start=None, end="b")
    assert not linearizable([unknown, Pin(5, 6, "c", "b", "b")], start=None, end="b")


def test_a_move_whose_answer_was_lost_may_find_its_successor() -> None:
    history = [Pin(0, 9, None, "a", "b"), Pin(3, 4, "a", "b", "b")]
    assert linearizable(history, start=None, end="b")


def test_a_lost_update_is_impossible() -> None:
    assert not linearizable([Pin(0, 1, None, "a", "a")], start=None, end=None)
