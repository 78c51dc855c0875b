"""Policies of the network, on a network that enforces them: they admit what talks, and nothing else.

All other tests of this folder run under the same policies.
"""

import json
from collections.abc import Iterator

import pytest

from onenode.manifests import as_list
from support.installation import OPERATOR_NAMESPACE, RELEASE, Installation
from support.reach import CLIENT, PROMETHEUS, STRANGER, Visitor, idle_pod, places, reached, reached_by_all

pytestmark = [pytest.mark.heavy, pytest.mark.lab]
NAMESPACE, CLUSTER, ELSEWHERE = "agents", "main", "strangers"
METRICS = {"endpoint", "controller", "engine", "metrics of etcd"}


@pytest.fixture(scope="module")
def visitors(serving: Installation) -> Iterator[dict[str, Visitor]]:
    """Pods around the cluster and the operator, by what they are to the cluster."""
    kubectl, image = serving.target.kubectl, serving.target.image("controller")
    here = [idle_pod(name, NAMESPACE, image) for name in (CLIENT, PROMETHEUS, STRANGER)]
    # Called as the client is, in a namespace from which nobody is admitted.
    elsewhere = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}}]
    elsewhere += [idle_pod(name, ELSEWHERE, image) for name in (CLIENT, PROMETHEUS)]
    kubectl("apply", "-f", "-", stdin=json.dumps(as_list([*elsewhere, *here])))
    try:
        for namespace in (NAMESPACE, ELSEWHERE):
            kubectl("wait", "pod", "-n", namespace, "-l", "app", "--for=condition=Ready", "--timeout=180s")
        yield {
            "client": Visitor(NAMESPACE, CLIENT),
            "prometheus": Visitor(NAMESPACE, PROMETHEUS),
            "stranger": Visitor(NAMESPACE, STRANGER),
            "client's namesake elsewhere": Visitor(ELSEWHERE, CLIENT),
            "prometheus' namesake elsewhere": Visitor(ELSEWHERE, PROMETHEUS),
            "operator": Visitor(OPERATOR_NAMESPACE, f"deploy/{RELEASE}-operator"),
        }
    finally:
        kubectl("delete", "namespace", ELSEWHERE, "--wait=false")
        kubectl("delete", "pod", "-n", NAMESPACE, CLIENT, PROMETHEUS, STRANGER, "--wait=false")


def test_each_reaches_what_it_talks_to_and_nothing_else(cluster: Installation, visitors: dict[str, Visitor]) -> None:
    among = places(cluster, CLUSTER, NAMESPACE)
    for component in ("controller", "engine"):
        # Not the pod that is visited: nothing keeps a pod from itself.
        names = sorted(pod["metadata"]["name"] for pod in cluster.pods(CLUSTER, NAMESPACE, component))
        visitors = visitors | {component: Visitor(NAMESPACE, names[-1])}
    expected = {
        "client": {"endpoint", "controller"},
        "prometheus": METRICS,
        "stranger": set(),
        "client's namesake elsewhere": set(),
        "prometheus' namesake elsewhere": set(),
        "operator": METRICS,
        "controller": {"engine", "etcd for clients"},
        "engine": set(),
    }

    def all_is_reached() -> bool:
        # On a busy machine a connection may take too long: what is admitted is tried again. What is not, fails at once.
        found = reached_by_all(cluster.target, visitors, among)
        assert {name: found[name] - expected[name] for name in found if found[name] - expected[name]} == {}
        return found == expected

    cluster.wait_until(all_is_reached, f"the places that are admitted are reached: {expected}", seconds=120)


def test_the_operator_tells_what_programs_do_though_a_policy_keeps_others_out(cluster: Installation) -> None:
    def told() -> bool:
        resource = cluster.get("axc", CLUSTER, NAMESPACE)
        return resource is not None and "live" in resource["status"].get("programs", {})

    cluster.wait_until(told, "figures of programs in the status", seconds=120)


def test_without_policies_a_stranger_gets_in_and_with_them_out_again(
    cluster: Installation, visitors: dict[str, Visitor]
) -> None:
    among = places(cluster, CLUSTER, NAMESPACE)

    def switch(mode: str, reaches: set[str]) -> None:
        change = json.dumps({"spec": {"networkPolicy": {"mode": mode}}})
        cluster.target.kubectl("patch", f"axc/{CLUSTER}", "-n", NAMESPACE, "--type=merge", "--patch", change)
        cluster.wait_until(
            lambda: reached(cluster.target, visitors["stranger"], among) == reaches,
            f"what a stranger reaches with policies {mode} is {reaches or 'nothing'}",
            seconds=120,
        )

    try:
        switch("Disabled", set(among))
    finally:
        switch("Enabled", set())
    assert places(cluster, CLUSTER, NAMESPACE) == among, "no pod is replaced for a policy"
