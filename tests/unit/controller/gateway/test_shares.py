"""How tenants share what there is a bounded amount of."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.gateway.shares import Shares

TENANTS = st.sampled_from("abcde")
LIMIT = 900


def several() -> bool:
    return False


def fill(shares: Shares, *tenants: str) -> Counter[str]:
    """Everybody takes one after another, in turn, until nobody may."""
    held: Counter[str] = Counter()
    taken = True
    while taken:
        taken = False
        for tenant in tenants:
            if shares.take(tenant, 1):
                held[tenant] += 1
                taken = True
    return held


@given(st.lists(st.tuples(TENANTS, st.integers(1, 300), st.booleans()), max_size=60))
def test_nothing_is_given_twice_and_nothing_gets_lost(steps: list[tuple[str, int, bool]]) -> None:
    shares = Shares(LIMIT, alone=several)
    taken: list[tuple[str, int]] = []
    for tenant, amount, back in steps:
        if back and taken:
            shares.give_back(*taken.pop())
        else:
            there_is_room = shares.has_room(tenant, amount)
            assert shares.take(tenant, amount) is there_is_room
            taken += [(tenant, amount)] * there_is_room
        assert shares.used == sum(amount for _, amount in taken) <= LIMIT
    for tenant, amount in taken:
        shares.give_back(tenant, amount)
    assert shares.used == 0
    assert shares.has_room("a", 10 * LIMIT), "alone, a thing may be as large as it is"


@given(st.lists(TENANTS, unique=True, max_size=4))
def test_whoever_comes_to_a_full_house_finds_room(tenants: list[str]) -> None:
    shares = Shares(LIMIT, alone=several)
    for tenant in tenants:  # one after another takes all that it may
        fill(shares, tenant)
    assert shares.has_room("newcomer", 1)
    assert fill(shares, "newcomer")["newcomer"] >= 1


def test_those_who_come_together_get_the_same() -> None:
    for number in (1, 2, 4):
        shares = Shares(LIMIT, alone=several)
        held = fill(shares, *"abcd"[:number])
        fair = 3 * LIMIT / (3 * number + 1)
        assert all(abs(amount - fair) <= number for amount in held.values())


def test_a_tenant_that_had_all_ends_up_with_its_share() -> None:
    """It gets no more until it holds less than its share, and newcomers take what it gives back."""
    shares = Shares(LIMIT, alone=several)
    greedy = fill(shares, "greedy")["greedy"]
    modest = fill(shares, "modest")["modest"]
    assert (greedy, modest) == (675, 168)
    for _ in itertools.repeat(None, 400):
        shares.give_back("greedy", 1)
        greedy -= 1
        now = fill(shares, "greedy", "modest")
        greedy, modest = greedy + now["greedy"], modest + now["modest"]
    assert abs(greedy - modest) <= 3


def test_one_tenant_that_is_alone_gets_everything() -> None:
    assert fill(Shares(LIMIT, alone=lambda: True), "a")["a"] == LIMIT


def test_a_tenants_only_thing_may_have_all_that_is_free() -> None:
    shares = Shares(LIMIT, alone=several)
    shares.take("a", 100)
    assert shares.has_room("b", 800)
    assert not shares.has_room("b", 801)
    shares.take("b", 500)
    assert shares.has_room("b", 300, own=500)
    assert not shares.has_room("b", 300, own=400)
