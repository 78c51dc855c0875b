"""Changes to a serving cluster, each under steady agent traffic: no call fails, and no program moves without need.

Clients do not retry: what they see is what the system does for them. ``AUTELLIX_SOAK_ROUNDS`` plays each change so many
times.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from onenode.errors import OnenodeError
from support.installation import Installation
from support.resources import SERVED_MODEL
from support.steady_traffic import Habits, SteadyTraffic, Window

NAMESPACE, CLUSTER = "agents", "main"
ROUNDS = int(os.environ.get("AUTELLIX_SOAK_ROUNDS", "1"))

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True, params=range(ROUNDS))
def play(request: pytest.FixtureRequest) -> int:
    """The number of the round."""
    number: int = request.param
    return number


@pytest.fixture
async def traffic(client: AsyncOpenAI) -> AsyncIterator[SteadyTraffic]:
    """Agents at work on the cluster, beside the whole test."""
    async with SteadyTraffic(client, SERVED_MODEL, Habits()).running() as traffic:
        yield traffic


def names(cluster: Installation, component: str) -> set[str]:
    """Pods of a component that are there to stay."""
    return {pod["metadata"]["name"] for pod in cluster.pods(CLUSTER, NAMESPACE, component)}


async def kubectl(cluster: Installation, *arguments: str, stdin: str | None = None) -> str:
    return await asyncio.to_thread(cluster.target.kubectl, "-n", NAMESPACE, *arguments, stdin=stdin)


async def settled(cluster: Installation) -> None:
    await asyncio.to_thread(cluster.wait_settled, CLUSTER, NAMESPACE)


def no_call_failed(seen: Window) -> None:
    print(seen)
    assert seen.failures == [], f"{seen}\n" + "\n".join(map(str, seen.failures))


async def test_controllers_are_replaced(cluster: Installation, traffic: SteadyTraffic) -> None:
    before = await asyncio.to_thread(names, cluster, "controller")
    async with traffic.window("restart of the controllers, one after another") as seen:
        await kubectl(cluster, "rollout", "restart", f"deployment/{CLUSTER}-controller")
        await kubectl(cluster, "rollout", "status", f"deployment/{CLUSTER}-controller", "--timeout=180s")
        await settled(cluster)
    assert not before & await asyncio.to_thread(names, cluster, "controller")
    no_call_failed(seen)
    assert seen.needless_moves(gone=()) == []


async def test_a_member_of_etcd_restarts(cluster: Installation, traffic: SteadyTraffic) -> None:
    async with traffic.window("restart of the one member of etcd") as seen:
        await kubectl(cluster, "delete", "pod", f"{CLUSTER}-etcd-0")
        await settled(cluster)
    no_call_failed(seen)
    # Two replicas that cannot ask etcd may choose two engines for a program that begins just then.
    assert seen.needless_moves(gone=(), of_programs_before=True) == []


async def evict(cluster: Installation, pod: str) -> None:
    """As `kubectl drain` does with each pod of a node. Raises OnenodeError if a disruption budget forbids it."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    await kubectl(cluster, "create", "--raw", path, "-f", "-", stdin=json.dumps(body))


async def test_a_node_is_drained_and_the_budgets_hold(cluster: Installation, traffic: SteadyTraffic) -> None:
    first, second = sorted(await asyncio.to_thread(names, cluster, "controller"))
    async with traffic.window("eviction of both controllers") as seen:
        await evict(cluster, first)
        with pytest.raises(OnenodeError, match="disruption budget"):
            await evict(cluster, second)
        await settled(cluster)
    assert second in await asyncio.to_thread(names, cluster, "controller")
    no_call_failed(seen)
    assert seen.needless_moves(gone=()) == []
