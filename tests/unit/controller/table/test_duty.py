"""One replica of all does what is to be done once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.table.duty import on_duty

REPLICAS = st.sets(st.text("abc-0123", min_size=1, max_size=8), min_size=1, max_size=6)


@given(st.text(), REPLICAS)
def test_all_replicas_name_the_same_one(program: str, replicas: set[str]) -> None:
    named = on_duty(program, replicas)
    assert named in replicas
    assert on_duty(program, sorted(replicas)) == on_duty(program, sorted(replicas, reverse=True)) == named


@given(st.text(), REPLICAS, st.text("xyz", min_size=1))
def test_one_that_comes_takes_only_what_becomes_its_own(program: str, replicas: set[str], newcomer: str) -> None:
    assert on_duty(program, replicas | {newcomer}) in {on_duty(program, replicas), newcomer}


def test_the_work_is_spread() -> None:
    shares = Counter(on_duty(f"program-{number}", ["replica-0", "replica-1", "replica-2"]) for number in range(3000))
    assert all(700 < share < 1300 for share in shares.values())
    assert len(shares) == 3
