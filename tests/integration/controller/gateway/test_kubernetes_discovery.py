"""Engines behind a Service of a real Kubernetes API, seen with no more rights than the controller has there.

The pods' addresses are multicast ones: the API takes them, and a connection to them fails at once without traffic.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from onenode.binaries import binary
from support.apiserver import Client, api_server
from support.controller_process import ControllerProcess, controller_process
from support.etcd import running_etcd
from support.ports import free_ports

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
HOLD_SECONDS = 1.5
#: 150 MB.
MOST_MEMORY_KIB = 146_000
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


@pytest.fixture(scope="module")
def admin() -> Iterator[Client]:
    with api_server(binary("kube"), controllers=False) as client:
        client.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "controller"}})
        rule = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
        client.request("POST", f"{RBAC}/roles", {"metadata": {"name": "controller"}, "rules": [rule]})
        binding = {
            "metadata": {"name": "controller"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "controller"},
            "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": "default"}],
        }
        client.request("POST", f"{RBAC}/rolebindings", binding)
        yield client


@contextmanager
def replica_in(folder: Path, admin: Client, *arguments: str) -> Iterator[ControllerProcess]:
    config = folder / "kubeconfig"
    config.write_text(yaml.safe_dump(admin.service_account("default", "controller").kubeconfig()))
    arguments = ("--engines", "kubernetes://default/c-engine", "--hold-seconds", str(HOLD_SECONDS), *arguments)
    env = {"KUBECONFIG": str(config)}
    with controller_process(folder, free_ports(1)[0], *arguments, env=env) as replica:
        yield replica


@pytest.fixture
def replica(admin: Client, tmp_path: Path) -> Iterator[ControllerProcess]:
    with replica_in(tmp_path, admin) as replica:
        yield replica


def slice_of(name: str, service: str, **pods: dict[str, bool]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}],
        "endpoints": [
            {
                "addresses": [f"239.0.0.{number}"],
                "conditions": conditions,
                "targetRef": {"kind": "Pod", "name": pod, "namespace": "default"},
            }
            for number, (pod, conditions) in enumerate(pods.items(), start=1)
        ],
    }


async def engines_become(replica: ControllerProcess, expected: set[str]) -> None:
    found: set[str] = set()
    for _ in range(1200):
        lines = replica.readiness()[1]["degraded"]
        found = {line.split(":")[0].removeprefix("engine ") for line in lines}
        if found == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"expected {expected}, found {found}\n{replica.log_text()}")


async def test_engines_come_and_go_with_their_pods(admin: Client, replica: ControllerProcess) -> None:
    ready, not_ready = {"ready": True}, {"ready": False}
    terminating = {"ready": False, "serving": True, "terminating": True}
    await engines_become(replica, set())
    admin.request("POST", SLICES, slice_of("other", "another-service", x=ready))
    admin.request("POST", SLICES, slice_of("one", "c-engine", a=ready, b=not_ready))
    await engines_become(replica, {"a"})
    admin.request("PUT", f"{SLICES}/one", slice_of("one", "c-engine", a=ready, b=ready))
    await engines_become(replica, {"a", "b"})
    admin.request("POST", SLICES, slice_of("two", "c-engine", c=ready))
    await engines_become(replica, {"a", "b", "c"})
    admin.request("PUT", f"{SLICES}/one", slice_of("one", "c-engine", a=terminating, b=not_ready))
    await engines_become(replica, {"a", "c"})
    admin.request("DELETE", f"{SLICES}/one")
    await engines_become(replica, {"c"})
    admin.request("DELETE", f"{SLICES}/two")
    await engines_become(replica, set())


def test_idle_with_its_table_in_etcd_it_stays_small(admin: Client, tmp_path: Path) -> None:
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        replica_in(tmp_path, admin, "--table", etcd.url) as replica,
    ):
        status = Path(f"/proc/{replica.process.pid}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < MOST_MEMORY_KIB


async def test_it_is_ready_without_any_engine_and_holds_calls(admin: Client, replica: ControllerProcess) -> None:
    await engines_become(replica, set())
    began = time.monotonic()
    async with aiohttp.ClientSession(replica.url) as http:
        call = asyncio.create_task(http.post("/v1/chat/completions", json={"model": "any", "messages": []}))
        # An engine that Kubernetes lists and nobody reaches: it keeps the endpoint of the cluster.
        admin.request("POST", SLICES, slice_of("one", "c-engine", a={"ready": True}))
        statuses = set()
        while not call.done():
            statuses.add(replica.readiness()[0])
            await asyncio.sleep(0.02)
        async with await call as response:
            assert (response.status, response.headers["retry-after"]) == (503, "2")
            assert json.loads(await response.read())["error"]["code"] == "no_engine"
    assert time.monotonic() - began >= HOLD_SECONDS
    assert statuses == {200}
    admin.request("DELETE", f"{SLICES}/one")
    await engines_become(replica, set())
