"""A change to a serving cluster, beside agents at work: how it is made, and what is asked of it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from onenode.errors import OnenodeError
from support.installation import OPERATOR_NAMESPACE, Installation
from support.ports import CONTROLLER_PORT
from support.routable_engines import watched_engines
from support.steady_traffic import SteadyTraffic, Window

#: Three engines that load at once on two cores take their time.
_SETTLE_SECONDS = 600
#: Each look costs half a second of a core.
_LOOK_SECONDS = 2.0


class Changes:
    """What an administrator does to one cluster."""

    def __init__(self, installation: Installation, cluster: str, namespace: str) -> None:
        self.installation, self.cluster, self.namespace = installation, cluster, namespace

    async def names(self, component: str) -> set[str]:
        """Pods of a component that are there to stay."""
        pods = await asyncio.to_thread(self.installation.pods, self.cluster, self.namespace, component)
        return {pod["metadata"]["name"] for pod in pods}

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints, run in the cluster's namespace."""
        return await asyncio.to_thread(
            self.installation.target.kubectl, "-n", self.namespace, *arguments, stdin=stdin, seconds=_SETTLE_SECONDS
        )

    async def settled(self) -> None:
        """Returns when the newest spec serves and nothing is under way any more."""
        await asyncio.to_thread(self.installation.wait_settled, self.cluster, self.namespace, seconds=_SETTLE_SECONDS)

    async def scale(self, engines: int) -> None:
        """Asks for so many engines."""
        await self.kubectl("scale", f"axc/{self.cluster}", f"--replicas={engines}")

    async def patch_engines(self, **fields: object) -> None:
        """Changes fields of ``spec.engine``."""
        change = json.dumps({"spec": {"engine": fields}})
        await self.kubectl("patch", f"axc/{self.cluster}", "--type=merge", "--patch", change)

    async def evict(self, pod: str) -> None:
        """As `kubectl drain` does with each pod of a node. Raises OnenodeError if a disruption budget forbids it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        await self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))

    async def exchange_engine_key(self) -> None:
        """Asks for another engine key, and returns when every engine lets it in."""
        secret = f"{self.cluster}-engine-key"
        old = await asyncio.to_thread(self.installation.engine_key, self.cluster, self.namespace)
        await self.kubectl("delete", "secret", secret)

        def exchanged() -> bool:
            if self.installation.get("secret", secret, self.namespace) is None:
                return False
            if self.installation.engine_key(self.cluster, self.namespace) == old:
                return False
            try:
                return bool(self.installation.engine_metrics(self.cluster, self.namespace))
            except httpx.HTTPError:
                return False

        await asyncio.to_thread(self.installation.wait_until, exchanged, "engines with the new key", seconds=180)

    async def kill_operator(self) -> None:
        """Ends the operator as a lost node would; its Deployment makes another one."""
        pods = ("pod", "-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/name=autellix-operator")
        kill = ("--grace-period=0", "--force", "--wait=false")
        await asyncio.to_thread(self.installation.target.kubectl, "delete", *pods, *kill)

    async def evict_when_allowed(self, pod: str) -> None:
        """Evicts as `kubectl drain` does: again and again, until the budget allows it."""
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                try:
                    return await self.evict(pod)
                except OnenodeError as refused:
                    if "disruption budget" not in str(refused):
                        raise
                await asyncio.sleep(_LOOK_SECONDS)

    async def engine_field(self, name: str) -> Any:
        """A field of ``spec.engine``."""
        resource = await asyncio.to_thread(self.installation.get, "axc", self.cluster, self.namespace)
        assert resource is not None
        return resource["spec"]["engine"][name]

    async def engine_comes(self, before: set[str]) -> None:
        """Returns when there is an engine besides those."""
        await self._engines(lambda names: not names <= before)

    async def engine_leaves(self, before: set[str]) -> None:
        """Returns when one of those is on its way out."""
        await self._engines(lambda names: not before <= names)

    async def _engines(self, condition: Callable[[set[str]], bool]) -> None:
        async with asyncio.timeout(_SETTLE_SECONDS):
            while not condition(await self.names("engine")):
                await asyncio.sleep(_LOOK_SECONDS)

    @asynccontextmanager
    async def of_engines(self, traffic: SteadyTraffic, what: str, *, routable: int = 1) -> AsyncIterator[None]:
        """A change of engines: made within the context, which ends when the cluster has settled. Then judges it.

        Never were there fewer engines to route to than ``routable``, no call failed, and no program left an engine
        that still served.
        """
        with contextlib.ExitStack() as ways:
            urls = [
                await asyncio.to_thread(
                    ways.enter_context,
                    self.installation.target.reach(self.namespace, f"pod/{pod}", CONTROLLER_PORT),
                )
                for pod in await self.names("controller")
            ]
            async with watched_engines(urls) as engines, traffic.window(what) as seen:
                yield
                await self.settled()
        left = engines.served_until(staying=await self.names("engine"))
        print(f"{seen}; of engines never fewer than {engines.fewest} in {engines.looks} looks")
        no_call_failed(seen)
        assert seen.needless_moves(left) == []
        assert engines.fewest >= routable


def no_call_failed(seen: Window) -> None:
    """Fails with all that failed."""
    assert seen.failures == [], f"{seen}\n" + "\n".join(map(str, seen.failures))
