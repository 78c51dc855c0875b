"""Of several operators at most one works on a namespace."""

from datetime import UTC, datetime, timedelta

import pytest

from autellix_operator.kube.applier import LEASE, ApiError, Refused
from autellix_operator.leadership import DURATION_SECONDS, RENEW_WITHIN_SECONDS, Leadership
from support.memory_applier import MemoryApplier


class World:
    """Two clocks that go together, and operators on one API."""

    def __init__(self) -> None:
        self.api = MemoryApplier()
        self.seconds = 1000.0

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds

    def operator(self, identity: str, *namespaces: str) -> Leadership:
        def now() -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

        return Leadership(self.api, identity, namespaces, lambda: self.seconds, now)


@pytest.fixture
def world() -> World:
    return World()


async def test_one_of_two_operators_leads_and_goes_on_as_long_as_it_renews(world: World) -> None:
    first, second = world.operator("first", "a"), world.operator("second", "a")
    for _ in range(30):
        await first.attempt()
        await second.attempt()
        assert (await first.leads("a"), await second.leads("a")) == (True, False)
        assert (first.held(), second.held()) == (1, 0)
        world.pass_(2)


async def test_a_holder_that_falls_silent_gives_up_before_another_takes_over(world: World) -> None:
    first, second = world.operator("first", "a"), world.operator("second", "a")
    await first.attempt()
    began = world.seconds
    while not await second.leads("a"):
        await second.attempt()
        world.pass_(0.5)
        assert not (await first.leads("a") and await second.leads("a"))
    assert RENEW_WITHIN_SECONDS < DURATION_SECONDS <= world.seconds - began <= DURATION_SECONDS + 3
    await first.attempt()
    assert not await first.leads("a")
    assert world.api.objects[LEASE, "a", "autellix-operator"]["spec"]["leaseTransitions"] == 1


async def test_what_is_released_is_taken_at_once(world: World) -> None:
    first, second = world.operator("first", "a"), world.operator("second", "a")
    await first.attempt()
    await first.release()
    assert not await first.leads("a")
    await second.attempt()
    assert await second.leads("a")


async def test_operators_that_overlap_share_no_namespace_and_leave_none_out(world: World) -> None:
    first, second = world.operator("first", "a", "b"), world.operator("second", "b", "c")
    await first.attempt()
    await second.attempt()
    assert [await first.leads(each) for each in "abc"] == [True, True, False]
    assert [await second.leads(each) for each in "abc"] == [False, False, True]


async def test_an_operator_for_all_namespaces_leaves_alone_what_another_holds_from_its_first_moment_on(
    world: World,
) -> None:
    everywhere, one = world.operator("everywhere"), world.operator("one", "a")
    await everywhere.attempt()
    assert await everywhere.leads("a")
    await one.attempt()
    assert await one.leads("a")
    assert (await everywhere.leads("a"), await everywhere.leads("b")) == (False, True)
    assert not await world.operator("second").leads("b")
    await one.release()
    world.pass_(9)
    await everywhere.attempt()
    world.pass_(2)
    assert await everywhere.leads("a")


async def test_of_a_namespace_that_another_holds_it_is_asked_now_and_then_only(world: World) -> None:
    everywhere, one = world.operator("everywhere"), world.operator("one", "a")
    await everywhere.attempt()
    await one.attempt()
    assert not await everywhere.leads("a")
    world.api.failures.append(ApiError(503, "Unavailable", "asked"))
    for _ in range(9):
        world.pass_(1)
        assert not await everywhere.leads("a")


async def test_a_missing_right_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    operator = world.operator("first", "a")
    world.api.failures += [Refused(403, "Forbidden", "leases is forbidden") for _ in range(3)]
    for _ in range(3):
        await operator.attempt()
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "lease a/autellix-operator can neither be acquired nor renewed: leases is forbidden"
    ]


async def test_an_api_that_does_not_answer_ends_the_lead_in_time(world: World) -> None:
    operator = world.operator("first", "a")
    await operator.attempt()
    world.pass_(RENEW_WITHIN_SECONDS)
    world.api.failures.append(ApiError(0, "Unreachable", "no answer"))
    await operator.attempt()
    assert not await operator.leads("a")
    await operator.attempt()
    assert await operator.leads("a")
