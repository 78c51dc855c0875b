"""A cluster from ``kubectl apply`` to nothing left, and the chart from install to uninstall."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from onenode import images
from onenode.errors import OnenodeError
from onenode.lab import Lab
from onenode.target import LabTarget, Target
from support.installation import OPERATOR_NAMESPACE, Installation, wait_until
from support.resources import SERVED_MODEL, autellix_cluster
from support.traffic import Program, run_program

pytestmark = pytest.mark.heavy
NAMESPACE = "life"
OWNED_KINDS = (
    "deployments,statefulsets,replicasets,pods,services,endpointslices,secrets,serviceaccounts,"
    "roles,rolebindings,configmaps,persistentvolumeclaims"
)


def owned(installation: Installation, cluster: str) -> list[str]:
    """Everything in Kubernetes that belongs to a cluster."""
    found = installation.items(OWNED_KINDS, NAMESPACE, f"autellix.dev/cluster={cluster}")
    return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in found)


async def first_token_behind_long_calls(client: AsyncOpenAI, label: str) -> float:
    """How long a short program waits for its first token while long calls hold both slots of the one engine."""
    long = [Program(name=f"{label}-long-{i}", calls=1, max_tokens=1500, streamed=False) for i in range(2)]
    async with asyncio.TaskGroup() as group:
        holders = [group.create_task(run_program(client, SERVED_MODEL, program)) for program in long]
        await asyncio.sleep(1.5)
        assert not any(task.done() for task in holders), "the long calls ended before the short one came"
        short = await run_program(client, SERVED_MODEL, Program(name=f"{label}-short", calls=1, max_tokens=4))
    return short.first_token_seconds


async def changes_its_order(installation: Installation, url: str) -> None:
    """One engine, first in order of arrival, then by PLAS: the short program no longer waits."""
    async with AsyncOpenAI(base_url=url, api_key="anyone", max_retries=0, timeout=120) as client:
        await run_program(client, SERVED_MODEL, Program(name="warm-up", calls=1, max_tokens=8))
        stock = await first_token_behind_long_calls(client, "stock")

        before = [p["metadata"]["name"] for p in installation.pods("order", NAMESPACE, "engine")]
        installation.apply(autellix_cluster("order", NAMESPACE, policy="Plas"))
        await asyncio.to_thread(installation.wait_ready, "order", NAMESPACE)
        after = [p["metadata"]["name"] for p in installation.pods("order", NAMESPACE, "engine")]
        assert len(after) == 1
        assert not set(before) & set(after), "another policy takes new engines"

        await run_program(client, SERVED_MODEL, Program(name="warm-up-again", calls=1, max_tokens=8))
        plas = await first_token_behind_long_calls(client, "plas")
    assert plas < stock / 4, f"first token after {plas:.2f} s under PLAS, {stock:.2f} s in order of arrival"


async def test_a_cluster_lives_changes_its_order_and_leaves_nothing_behind(installation: Installation) -> None:
    installation.namespace(NAMESPACE)
    installation.apply(autellix_cluster("order", NAMESPACE, policy="Fcfs"))
    await asyncio.to_thread(installation.wait_ready, "order", NAMESPACE)
    with installation.endpoint("order", NAMESPACE) as url:
        await changes_its_order(installation, url)

    installation.target.kubectl("delete", "deployment", "order-controller", "-n", NAMESPACE)
    wait_until(
        lambda: installation.get("deployment", "order-controller", NAMESPACE) is not None,
        seconds=30,
        what="a deleted child comes back",
    )
    assert owned(installation, "order")
    installation.target.kubectl("delete", "axc", "order", "-n", NAMESPACE, "--timeout=90s")
    wait_until(
        lambda: owned(installation, "order") == [],
        seconds=90,
        what="everything that belonged to the cluster gone",
        detail=lambda: "\n".join(owned(installation, "order")),
    )


def test_an_invalid_resource_is_refused_with_the_path_of_the_field(installation: Installation) -> None:
    wrong = autellix_cluster("wrong", "default")
    wrong["spec"]["engine"]["replicas"] = -1
    with pytest.raises(OnenodeError, match=r"spec\.engine\.replicas"):
        installation.apply(wrong)


def of_the_release(lab: Lab) -> list[str]:
    """What is in the operator's namespace besides that which Kubernetes puts into each."""
    kinds = "deployments,pods,services,serviceaccounts,secrets,configmaps,roles,rolebindings,leases"
    names = lab.kubectl("get", kinds, "-n", OPERATOR_NAMESPACE, "-o", "name").split()
    return [name for name in names if name not in ("serviceaccount/default", "configmap/kube-root-ca.crt")]


@pytest.fixture
def second_lab(target: Target) -> Iterator[Lab]:
    """Another Kubernetes beside the first, for what ends with the chart gone."""
    second = Lab(Path(tempfile.mkdtemp(prefix="axe2e-", dir="/tmp")))
    second.up(images.archives())
    try:
        yield second
    finally:
        second.down()


def test_the_chart_installs_upgrades_and_uninstalls_without_a_trace(second_lab: Lab) -> None:
    installation = Installation(LabTarget(second_lab))
    notes = installation.install()
    assert "kubectl" in notes, "the notes give the next command"
    installation.namespace(NAMESPACE)
    installation.apply(autellix_cluster("idle", NAMESPACE, engines=0))
    wait_until(
        lambda: installation.condition("idle", NAMESPACE, "ProcessTableReady")["status"] == "True",
        seconds=120,
        what="the process table of a cluster without engines",
        detail=lambda: installation.story("idle", NAMESPACE),
    )
    generation = installation.get("statefulset", "idle-etcd", NAMESPACE)
    installation.install(upgrade=True)
    assert installation.get("statefulset", "idle-etcd", NAMESPACE) == generation, "an upgrade touches no cluster"

    second_lab.kubectl("delete", "axc", "--all", "-n", NAMESPACE, "--timeout=90s")
    wait_until(lambda: owned(installation, "idle") == [], seconds=90, what="the cluster gone")
    installation.uninstall()
    assert second_lab.kubectl("get", "crd", "-o", "name").strip().endswith("autellixclusters.autellix.dev")
    second_lab.kubectl("delete", "crd", "autellixclusters.autellix.dev")
    wait_until(
        lambda: of_the_release(second_lab) == [],
        seconds=60,
        what="everything that the release made gone",
        detail=lambda: "\n".join(of_the_release(second_lab)),
    )
    wide = second_lab.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert not [name for name in wide.split() if "autellix" in name and "autellix-lab" not in name]
