"""Changes to a serving cluster, each under steady agent traffic: no call fails, and no program moves without need.

Clients do not retry: what they see is what the system does for them.
"""

import pytest

from onenode.errors import OnenodeError
from support.changes import Changes, no_call_failed
from support.steady_traffic import SteadyTraffic

pytestmark = [pytest.mark.heavy, pytest.mark.lab, pytest.mark.usefixtures("play")]


async def test_controllers_are_replaced(changes: Changes, traffic: SteadyTraffic) -> None:
    before = await changes.names("controller")
    async with traffic.window("restart of the controllers, one after another") as seen:
        await changes.kubectl("rollout", "restart", f"deployment/{changes.cluster}-controller")
        await changes.kubectl("rollout", "status", f"deployment/{changes.cluster}-controller", "--timeout=180s")
        await changes.settled()
    print(seen)
    assert not before & await changes.names("controller")
    no_call_failed(seen)
    assert seen.needless_moves() == []


async def test_a_member_of_etcd_restarts(changes: Changes, traffic: SteadyTraffic) -> None:
    async with traffic.window("restart of the one member of etcd") as seen:
        await changes.kubectl("delete", "pod", f"{changes.cluster}-etcd-0")
        await changes.settled()
    print(seen)
    no_call_failed(seen)
    # Two replicas that cannot ask etcd may choose two engines for a program that begins just then.
    assert seen.needless_moves(of_programs_before=True) == []


async def test_a_node_is_drained_and_the_budget_of_controllers_holds(changes: Changes, traffic: SteadyTraffic) -> None:
    first, second = sorted(await changes.names("controller"))
    async with traffic.window("eviction of both controllers") as seen:
        await changes.evict_when_allowed(first)
        with pytest.raises(OnenodeError, match="disruption budget"):
            await changes.evict(second)
        await changes.settled()
    print(seen)
    assert second in await changes.names("controller")
    no_call_failed(seen)
    assert seen.needless_moves() == []


async def test_the_engine_key_is_exchanged(changes: Changes, traffic: SteadyTraffic) -> None:
    """The kubelet brings the new key to each pod in its own time, up to a minute and more after it is made."""
    before = await changes.names("engine") | await changes.names("controller")
    async with traffic.window("exchange of the engine key") as seen:
        await changes.exchange_engine_key()
        await changes.settled()
    print(seen)
    no_call_failed(seen)
    assert seen.needless_moves() == []
    assert await changes.names("engine") | await changes.names("controller") == before


async def test_the_last_engine_is_replaced_though_the_operator_dies_half_way(
    changes: Changes, traffic: SteadyTraffic
) -> None:
    async with changes.of_engines(traffic, "from two engines to one"):
        await changes.scale(1)
    (only,) = await changes.names("engine")

    async with changes.of_engines(traffic, "rolling update of the one engine, the operator killed half way"):
        await changes.patch_engines(drainSeconds=await changes.engine_field("drainSeconds") + 1)
        await changes.engine_comes({only})
        await changes.kill_operator()
    assert only not in await changes.names("engine"), "another engine serves now"

    async with changes.of_engines(traffic, "from one engine to two"):
        await changes.scale(2)
    assert len(await changes.names("engine")) == 2


@pytest.mark.soak
async def test_engines_are_added_and_removed(changes: Changes, traffic: SteadyTraffic) -> None:
    for engines in (1, 3, 1, 2):
        async with changes.of_engines(traffic, f"to {engines} engines"):
            await changes.scale(engines)
        assert len(await changes.names("engine")) == engines


@pytest.mark.soak
async def test_two_engines_are_replaced_though_the_operator_dies_half_way(
    changes: Changes, traffic: SteadyTraffic
) -> None:
    before = await changes.names("engine")
    async with changes.of_engines(traffic, "rolling update of two engines, the operator killed half way", routable=2):
        await changes.patch_engines(drainSeconds=await changes.engine_field("drainSeconds") + 1)
        await changes.engine_leaves(before)
        await changes.kill_operator()
    after = await changes.names("engine")
    assert len(after) == 2
    assert not before & after, "other engines serve now"


@pytest.mark.soak
async def test_an_update_is_reverted_half_way(changes: Changes, traffic: SteadyTraffic) -> None:
    before = await changes.names("engine")
    drain_seconds = await changes.engine_field("drainSeconds")
    async with changes.of_engines(traffic, "rolling update of two engines, reverted half way", routable=2):
        await changes.patch_engines(drainSeconds=drain_seconds + 1)
        await changes.engine_leaves(before)
        await changes.patch_engines(drainSeconds=drain_seconds)
    after = await changes.names("engine")
    assert len(after) == 2
    assert len(before & after) == 1, "the engine that had not been replaced stays"


@pytest.mark.soak
async def test_a_node_is_drained_and_the_budget_of_engines_holds(changes: Changes, traffic: SteadyTraffic) -> None:
    first, second = sorted(await changes.names("engine"))
    async with changes.of_engines(traffic, "eviction of both engines, the second when the first is replaced"):
        await changes.evict_when_allowed(first)
        with pytest.raises(OnenodeError, match="disruption budget"):
            await changes.evict(second)
        await changes.evict_when_allowed(second)
    assert not {first, second} & await changes.names("engine")
