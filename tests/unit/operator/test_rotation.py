"""Which keys engines accept while the one in use is exchanged."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_operator.keys.rotation import FORMER_KEYS, AcceptedKeys, next_keys

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_the_first_key_is_the_only_one() -> None:
    assert next_keys("one", AcceptedKeys(()), NOON) == AcceptedKeys(("one",))


def test_a_key_that_is_no_longer_used_stays_accepted_for_a_stated_time() -> None:
    exchanged = next_keys("two", AcceptedKeys(("one",)), NOON)
    assert exchanged == AcceptedKeys(("two", "one"), NOON + FORMER_KEYS)
    assert next_keys("two", exchanged, NOON + FORMER_KEYS - SECOND) == exchanged
    assert next_keys("two", exchanged, NOON + FORMER_KEYS) == AcceptedKeys(("two",))


def test_one_more_exchange_meanwhile_gives_all_former_keys_the_time_anew() -> None:
    """A pod that has not seen the second key yet must not be left behind by the third."""
    exchanged = next_keys("two", AcceptedKeys(("one",)), NOON)
    later = NOON + FORMER_KEYS - SECOND
    assert next_keys("three", exchanged, later) == AcceptedKeys(("three", "two", "one"), later + FORMER_KEYS)


def test_the_way_back_to_a_former_key_is_an_exchange_too() -> None:
    exchanged = next_keys("two", AcceptedKeys(("one",)), NOON)
    assert next_keys("one", exchanged, NOON + SECOND) == AcceptedKeys(("one", "two"), NOON + SECOND + FORMER_KEYS)


@pytest.mark.parametrize("until", [None, NOON + 10 * FORMER_KEYS])
def test_a_time_that_is_missing_or_too_far_is_the_stated_one(until: datetime | None) -> None:
    assert next_keys("two", AcceptedKeys(("two", "one"), until), NOON).until == NOON + FORMER_KEYS


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(AcceptedKeys(("secret",)))


names = st.sampled_from(["a", "b", "c", "d"])


@given(st.lists(st.tuples(names, st.integers(0, 900)), max_size=8))
def test_a_key_is_accepted_for_at_least_the_stated_time_after_its_use_and_not_for_ever(
    steps: list[tuple[str, int]],
) -> None:
    accepted, now = AcceptedKeys(()), NOON
    last_used: dict[str, datetime] = {}
    before = None
    for used, seconds in steps:
        now += timedelta(seconds=seconds)
        if before is not None:
            last_used[before] = now
        accepted, before = next_keys(used, accepted, now), used
        assert accepted == next_keys(used, accepted, now), "asked once more it says the same"
        assert accepted.keys[0] == used
        recent = {key for key, at in last_used.items() if now - at < FORMER_KEYS}
        assert recent <= set(accepted.keys)
        assert (accepted.until is None) is (len(accepted.keys) == 1)
    if before is not None:
        assert next_keys(before, accepted, now + FORMER_KEYS) == AcceptedKeys((before,))
