"""One throw-away Kubernetes for all end-to-end tests, with the operator installed and one cluster that serves."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from onenode import images
from onenode.lab import Lab
from onenode.progress import Heartbeat
from support.installation import Installation, local_images
from support.resources import autellix_cluster

NAMESPACE = "agents"
CLUSTER = "main"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A Kubernetes of our own; this process is moved into its network."""
    folder = Path(tempfile.mkdtemp(prefix="axe2e-", dir="/tmp"))
    lab = Lab(folder)
    lab.up(images.archives())
    lab.enter_network()
    try:
        yield lab
    finally:
        keep = os.environ.get("AUTELLIX_E2E_KEEP_LOGS")
        if keep:
            shutil.copytree(lab.layout.logs, Path(keep), dirs_exist_ok=True)
        lab.down()


@pytest.fixture(scope="session")
def installation(lab: Lab) -> Installation:
    """The chart, installed by helm."""
    made = Installation(lab, local_images())
    made.install()
    return made


@pytest.fixture(scope="session")
def serving(installation: Installation) -> Installation:
    """The installation with cluster ``agents/main``: two engines, two controllers, all Ready once."""
    installation.namespace(NAMESPACE)
    installation.apply(autellix_cluster(CLUSTER, NAMESPACE, engines=2, controllers=2))
    with Heartbeat("two engines load"):
        installation.wait_ready(CLUSTER, NAMESPACE)
    return installation


@pytest.fixture
def cluster(serving: Installation) -> Installation:
    """The same, and Ready now: whatever the test before did to it is over."""
    serving.wait_ready(CLUSTER, NAMESPACE)
    return serving


@pytest.fixture
async def client(cluster: Installation) -> AsyncIterator[AsyncOpenAI]:
    """The plain OpenAI client on the cluster's Service."""
    async with AsyncOpenAI(
        base_url=cluster.endpoint(CLUSTER, NAMESPACE), api_key="anyone", max_retries=0, timeout=120
    ) as client:
        yield client
