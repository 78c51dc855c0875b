"""A cluster from ``kubectl apply`` to nothing left, and the chart from install to uninstall."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from openai import AsyncOpenAI

from onenode.errors import OnenodeError
from onenode.lab import Lab
from onenode.target import LabTarget
from support.installation import OPERATOR_NAMESPACE, Installation
from support.ports import CONTROLLER_PORT
from support.prometheus import scrape, total
from support.resources import SERVED_MODEL, autellix_cluster, intent
from support.traffic import Program, ProgramRun, run_program

pytestmark = pytest.mark.heavy
NAMESPACE = "life"
ENGINES_OF_ORDER = "autellix.dev/cluster=order,app.kubernetes.io/component=engine"
HOLD_SECONDS = 600
POLICIES_ENFORCED = {"mode": "Enabled"}
OWNED_KINDS = (
    "deployments,statefulsets,replicasets,pods,services,endpointslices,secrets,serviceaccounts,"
    "roles,rolebindings,configmaps,persistentvolumeclaims,poddisruptionbudgets,networkpolicies"
)


def owned(installation: Installation, cluster: str) -> list[str]:
    """Everything in Kubernetes that belongs to a cluster."""
    found = installation.items(OWNED_KINDS, NAMESPACE, f"autellix.dev/cluster={cluster}")
    return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in found)


def order_cluster(policy: str) -> dict[str, Any]:
    """A cluster with one engine that holds calls while there is none."""
    return autellix_cluster(
        "order",
        NAMESPACE,
        policy=policy,
        network_policy=POLICIES_ENFORCED,
        deadlines={"holdSeconds": HOLD_SECONDS},
    )


async def wait_behind_long_calls(client: AsyncOpenAI, label: str, engine: Callable[[], str]) -> float:
    """How long a short program waits for its first token while long calls hold both slots of the one engine.

    As a share of the time until the first of them has ended: how fast the machine is tells nothing. ``engine`` gives
    the engine's metrics page.
    """
    long = [Program(name=f"{label}-long-{i}", calls=1, max_tokens=1500, streamed=False) for i in range(2)]
    async with asyncio.TaskGroup() as group:
        holders = [group.create_task(run_program(client, SERVED_MODEL, program)) for program in long]
        async with asyncio.timeout(120):
            while total(await asyncio.to_thread(engine), "vllm:num_requests_running") < len(long):
                assert not any(task.done() for task in holders), "the long calls ended before both ran"
        sent = time.perf_counter()
        freed = group.create_task(first_ends(holders))
        short = await run_program(client, SERVED_MODEL, Program(name=f"{label}-short", calls=1, max_tokens=4))
        return short.first_token_seconds / (await freed - sent)


async def first_ends(programs: Sequence[asyncio.Task[ProgramRun]]) -> float:
    """When the first of them does, by ``time.perf_counter``."""
    await asyncio.wait(programs, return_when=asyncio.FIRST_COMPLETED)
    return time.perf_counter()


async def share_of_wait(installation: Installation, client: AsyncOpenAI, label: str) -> float:
    """The same for the cluster ``order`` as it is now, once its engine is warm."""
    await run_program(client, SERVED_MODEL, Program(name=f"{label}-warm-up", calls=1, max_tokens=8))
    with installation.engine_pages("order", NAMESPACE) as pages:
        return await wait_behind_long_calls(client, label, lambda: pages()[0])


async def changes_its_order(installation: Installation, url: str) -> None:
    """One engine, first in order of arrival, then by PLAS: the short program no longer waits."""
    async with AsyncOpenAI(base_url=url, api_key="anyone", max_retries=0, timeout=300) as client:
        stock = await share_of_wait(installation, client, "stock")
        assert stock > 0.75, f"in order of arrival it waited {stock:.2f} of the time until a slot was free"

        before = [p["metadata"]["name"] for p in installation.pods("order", NAMESPACE, "engine")]
        installation.apply(order_cluster("Plas"))
        await asyncio.to_thread(installation.wait_settled, "order", NAMESPACE)
        after = [p["metadata"]["name"] for p in installation.pods("order", NAMESPACE, "engine")]
        assert not set(before) & set(after), "another policy takes new engines"

        plas = await share_of_wait(installation, client, "plas")
    assert plas < 0.5, f"under PLAS it waited {plas:.2f} of the time until a slot was free"


async def holds_calls_while_there_is_no_engine(installation: Installation, url: str) -> None:
    """Scaled to zero and back: a call that comes meanwhile is served."""

    def scale(engines: int) -> None:
        installation.target.kubectl("scale", "axc/order", f"--replicas={engines}", "-n", NAMESPACE)

    def held_calls() -> float:
        (pod,) = installation.pods("order", NAMESPACE, "controller")
        with installation.target.reach(NAMESPACE, f"pod/{pod['metadata']['name']}", CONTROLLER_PORT) as address:
            return total(scrape(f"{address}/metrics"), "autellix_controller_held_calls")

    def engines() -> list[dict[str, Any]]:
        """Those on their way out too."""
        return installation.items("pods", NAMESPACE, ENGINES_OF_ORDER)

    await asyncio.to_thread(scale, 0)
    await asyncio.to_thread(installation.wait_until, lambda: not engines(), "the engine gone", seconds=300)
    async with AsyncOpenAI(base_url=url, api_key="anyone", max_retries=0, timeout=HOLD_SECONDS + 60) as client:
        patient = asyncio.create_task(
            run_program(client, SERVED_MODEL, Program(name="patient", calls=1, max_tokens=4, streamed=False))
        )
        await asyncio.to_thread(installation.wait_until, lambda: held_calls() == 1, "the call held", seconds=120)
        await asyncio.to_thread(scale, 1)
        assert [call.tokens for call in (await patient).calls] == [4]


async def test_a_cluster_lives_changes_its_order_and_leaves_nothing_behind(installation: Installation) -> None:
    installation.namespace(NAMESPACE)
    installation.apply(order_cluster("Fcfs"))
    await asyncio.to_thread(installation.wait_settled, "order", NAMESPACE)
    with installation.endpoint("order", NAMESPACE) as url:
        await changes_its_order(installation, url)
        await holds_calls_while_there_is_no_engine(installation, url)

    installation.target.kubectl("delete", "deployment", "order-controller", "-n", NAMESPACE)
    installation.wait_until(
        lambda: installation.get("deployment", "order-controller", NAMESPACE) is not None,
        "a deleted child comes back",
        seconds=120,
    )
    assert owned(installation, "order")
    installation.target.kubectl("delete", "axc", "order", "-n", NAMESPACE, "--timeout=300s")
    installation.wait_until(
        lambda: owned(installation, "order") == [],
        "everything that belonged to the cluster gone",
        seconds=300,
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


def test_the_test_of_the_chart_proves_the_promise(cluster: Installation) -> None:
    found = cluster.prove("http://main.agents.svc/v1", long_calls=4, long_tokens=1000)
    assert re.search(r"Phase:\s+Succeeded", found), found


def test_the_test_of_the_chart_fails_where_no_cluster_answers(installation: Installation) -> None:
    with pytest.raises(OnenodeError, match=r"(?s)not proved: http://nobody\.default\.svc"):
        installation.prove("http://nobody.default.svc/v1", long_calls=1, long_tokens=1)


@pytest.mark.lab
def test_the_chart_installs_upgrades_rolls_back_and_uninstalls_without_a_trace(second_lab: Lab) -> None:
    installation = Installation(LabTarget(second_lab))
    notes = installation.install()
    assert "kubectl" in notes, "the notes give the next command"
    installation.namespace(NAMESPACE)
    idle = autellix_cluster("idle", NAMESPACE, engines=0, network_policy=POLICIES_ENFORCED)
    idle["spec"]["processTable"] = {"etcd": {"managed": {"replicas": 3}}}  # members reach one another
    installation.apply(idle)
    installation.wait_until(
        lambda: installation.condition("idle", NAMESPACE, "ProcessTableReady")["status"] == "True",
        "the process table of a cluster without engines",
        seconds=300,
        detail=lambda: installation.story("idle", NAMESPACE),
    )

    def etcd() -> dict[str, Any]:
        found = installation.get("statefulset", "idle-etcd", NAMESPACE)
        assert found is not None
        return intent(found)

    before = etcd()
    installation.install(upgrade=True, log={"format": "text", "level": "debug"})
    assert etcd() == before, "an upgrade touches no cluster"
    installation.rollback(1)
    assert etcd() == before, "nor does the way back"

    installation.uninstall()
    assert etcd() == before, "clusters go on without an operator"
    second_lab.kubectl("delete", "axc", "--all", "-n", NAMESPACE, "--timeout=180s")
    installation.wait_until(lambda: owned(installation, "idle") == [], "the cluster gone", seconds=180)
    assert second_lab.kubectl("get", "crd", "-o", "name").strip().endswith("autellixclusters.autellix.dev")
    second_lab.kubectl("delete", "crd", "autellixclusters.autellix.dev")
    installation.wait_until(
        lambda: of_the_release(second_lab) == [],
        "everything that the release made gone",
        seconds=180,
        detail=lambda: "\n".join(of_the_release(second_lab)),
    )
    wide = second_lab.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert not [name for name in wide.split() if "autellix" in name and "autellix-lab" not in name]
