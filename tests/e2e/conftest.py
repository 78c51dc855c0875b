"""One throw-away Kubernetes for all end-to-end tests, with the operator installed and one cluster that serves.

On a cluster that KUBE_CONTEXT names, tests marked ``lab`` are left out: they kill controllers, to one of which the
forwarded port leads, need a network that enforces policies, or end with the chart gone.

``AUTELLIX_SOAK_ROUNDS`` plays changes to the cluster so many times, and those too that are too long for CI.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from onenode import images
from onenode.lab import Lab
from onenode.layout import default_lab_folder
from onenode.progress import Heartbeat
from onenode.target import CONTEXT_VARIABLE, LabTarget, Target, chosen_context
from support.changes import Changes
from support.installation import Installation
from support.labs import named_lab
from support.reach import NETWORK_POLICY
from support.resources import SERVED_MODEL, autellix_cluster
from support.steady_traffic import Habits, SteadyTraffic

LAB, SECOND_LAB = "e2e", "e2e-chart"
NAMESPACE, LIFE_NAMESPACE = "agents", "life"
CLUSTER = "main"
ENGINES = 2
ROUNDS = int(os.environ.get("AUTELLIX_SOAK_ROUNDS", "0"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.timeout(900))
    left_out = [*(() if ROUNDS else ("soak",)), *(("lab",) if os.environ.get(CONTEXT_VARIABLE) else ())]
    if others := [item for item in here if any(item.get_closest_marker(name) for name in left_out)]:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    """The cluster that KUBE_CONTEXT names, or a throw-away one into whose network this process is moved."""
    named = chosen_context()
    if named is not None:
        yield named
        return
    with named_lab(LAB, images.archives()) as lab:
        Lab(default_lab_folder(SECOND_LAB)).down()  # of a run that was killed
        lab.enter_network()
        yield LabTarget(lab)


@pytest.fixture
def second_lab(target: Target) -> Iterator[Lab]:
    """Another Kubernetes beside the first, for what ends with the chart gone."""
    with named_lab(SECOND_LAB, images.archives()) as second:
        yield second


@pytest.fixture(scope="session")
def installation(target: Target) -> Iterator[Installation]:
    """The chart, installed by helm."""
    if isinstance(target, LabTarget):
        made = Installation(target)
        made.install()
        yield made
        return
    # It goes on without us, and others may use it.
    made = Installation(target, lends_files=False, watched=(NAMESPACE, LIFE_NAMESPACE))
    made.install(upgrade=True)  # of a run that was killed
    yield made
    made.remove()


@pytest.fixture(scope="session")
def serving(installation: Installation) -> Installation:
    """The installation with cluster ``agents/main``: two engines, two controllers, all Ready once.

    Policies of the network keep everybody out but whom it needs, so every test shows that they let through what talks.
    """
    installation.namespace(NAMESPACE)
    installation.apply(
        autellix_cluster(CLUSTER, NAMESPACE, engines=ENGINES, controllers=2, network_policy=NETWORK_POLICY)
    )
    with Heartbeat("two engines load"):
        installation.wait_ready(CLUSTER, NAMESPACE)
    return installation


@pytest.fixture
def cluster(serving: Installation) -> Installation:
    """The same, as it should be: whatever the test before did to it is over."""
    serving.wait_settled(CLUSTER, NAMESPACE)
    return serving


@pytest.fixture
async def client(cluster: Installation) -> AsyncIterator[AsyncOpenAI]:
    """The plain OpenAI client on the cluster's Service."""
    with cluster.endpoint(CLUSTER, NAMESPACE) as url:
        async with AsyncOpenAI(base_url=url, api_key="anyone", max_retries=0, timeout=120) as client:
            yield client


@pytest.fixture(params=range(max(ROUNDS, 1)))
def play(request: pytest.FixtureRequest) -> int:
    """The number of the round."""
    number: int = request.param
    return number


@pytest.fixture
async def changes(cluster: Installation) -> AsyncIterator[Changes]:
    """What is done to the cluster. It has as many engines as before when the test is over, however that ends."""
    changes = Changes(cluster, CLUSTER, NAMESPACE)
    yield changes
    await changes.scale(ENGINES)


@pytest.fixture
async def traffic(client: AsyncOpenAI) -> AsyncIterator[SteadyTraffic]:
    """Agents at work on the cluster, beside the whole test."""
    async with SteadyTraffic(client, SERVED_MODEL, Habits()).running() as traffic:
        yield traffic
