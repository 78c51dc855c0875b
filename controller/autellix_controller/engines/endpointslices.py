"""Engines behind a Kubernetes Service, by list and watch of its EndpointSlices.

A pod that is ready and not terminating gets calls. One that terminates stays known, so that the records of its last
calls still arrive. An engine's name is its pod's name (without a pod, its address).

The Service's labels are those of its slices too. One of them has the hash of the newest pod template, which is part of
the names of its pods: all others are about to be replaced.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, Protocol

import aiohttp

from autellix_controller.background import Backoff
from autellix_controller.engines.discovery import Publish
from autellix_controller.engines.engine import Endpoint
from autellix_controller.logs import fields

log = logging.getLogger(__name__)

PORT_NAME: Final = "http"
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
#: Set by the operator on the Service, once Kubernetes has given the newest template its hash.
REVISION_LABEL: Final = "autellix.dev/engine-revision"
#: The server ends a watch after so long; a connection that died silently is noticed a little later.
_WATCH_SECONDS: Final = 240
_GONE: Final = 410


class WatchExpired(Exception):
    """The server no longer has the changes since our resource version: list again."""


class SliceSource(Protocol):
    """The two requests that the watcher needs from the API server. Objects are plain JSON."""

    async def list(self) -> Mapping[str, Any]:
        """The EndpointSliceList of the Service."""

    def watch(self, resource_version: str) -> AsyncIterator[Mapping[str, Any]]:
        """Watch events after that version, until the server ends the stream. Raises WatchExpired."""


def endpoints_of(slices: Iterable[Mapping[str, Any]]) -> list[Endpoint]:
    """The engines that some EndpointSlices describe, sorted by name.

    An endpoint may stand in two slices for a moment, while it moves: it accepts calls if either says so.
    """
    found: dict[str, Endpoint] = {}
    for item in slices:
        port = _port(item.get("ports") or ())
        if port is None:
            continue
        ipv6 = item.get("addressType") == "IPv6"
        revision = item["metadata"].get("labels", {}).get(REVISION_LABEL)
        for entry in item.get("endpoints") or ():
            conditions = entry.get("conditions") or {}
            target = entry.get("targetRef") or {}
            if not entry.get("addresses"):
                continue
            address = entry["addresses"][0]
            terminating = conditions.get("terminating") is True
            # The API says: an absent `ready` is to be read as true.
            ready = conditions.get("ready") is not False
            if not ready and not terminating:
                continue
            name = target.get("name") or address
            endpoint = Endpoint(
                name,
                f"http://[{address}]:{port}" if ipv6 else f"http://{address}:{port}",
                accepts=ready and not terminating,
                outdated=revision is not None and f"-{revision}" not in name,
            )
            known = found.get(endpoint.name)
            if known is None or endpoint.accepts:
                found[endpoint.name] = endpoint
    return [found[name] for name in sorted(found)]


def _port(ports: Iterable[Mapping[str, Any]]) -> int | None:
    numbers = {port.get("name") or "": port.get("port") for port in ports}
    if PORT_NAME in numbers:
        return numbers[PORT_NAME]
    return next(iter(numbers.values()), None) if len(numbers) == 1 else None


class EndpointSliceDiscovery:
    """Follows the slices of one Service."""

    def __init__(self, source: SliceSource, backoff: Backoff | None = None) -> None:
        self._source = source
        self._backoff = backoff or Backoff(0.2, 10.0)
        self._slices: dict[str, Mapping[str, Any]] = {}

    async def run(self, publish: Publish) -> None:
        """See ``Discovery``."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(publish)
                silent = True
                async for event in self._source.watch(version):
                    version = self._take(event, publish) or version
                    self._backoff.reset()
                    silent = False
                if silent:  # bookmarks come every minute: this server ends watches as soon as it gets them
                    await asyncio.sleep(self._backoff.pause())
            except WatchExpired:
                version = ""
                await asyncio.sleep(self._backoff.pause())
            except Exception as error:
                # Whatever goes wrong with the API server, the engines we know are still there.
                reason = f"{type(error).__name__}: {error}"[:300]
                log.warning("cannot follow the engines' EndpointSlices", extra=fields(reason=reason))
                await asyncio.sleep(self._backoff.pause())

    async def _list(self, publish: Publish) -> str:
        listed = await self._source.list()
        self._slices = {item["metadata"]["name"]: item for item in listed["items"]}
        publish(endpoints_of(self._slices.values()))
        return str(listed["metadata"]["resourceVersion"])

    def _take(self, event: Mapping[str, Any], publish: Publish) -> str | None:
        item = event["object"]
        if event["type"] == "ERROR":
            if item.get("code") == _GONE:
                raise WatchExpired
            raise RuntimeError(f"watch: {item.get('reason')}: {item.get('message')}")
        if event["type"] == "DELETED":
            self._slices.pop(item["metadata"]["name"], None)
        elif event["type"] in ("ADDED", "MODIFIED"):
            self._slices[item["metadata"]["name"]] = item
        if event["type"] != "BOOKMARK":
            publish(endpoints_of(self._slices.values()))
        version: str | None = item["metadata"].get("resourceVersion")
        return version


class KubernetesSlices:
    """``SliceSource`` over the API server, by ``kubernetes.aio``.

    Only its connection and credentials are used: typed resources would cost most of the controller's memory, and of
    its image.
    """

    def __init__(self, namespace: str, service: str) -> None:
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = f"{_SERVICE_LABEL}={service}"
        self._client: Any = None

    async def list(self) -> Mapping[str, Any]:
        """See ``SliceSource``."""
        response = await self._get({}, seconds=30)
        body = await response.read()
        _raise_for(response.status, body)
        listed: Mapping[str, Any] = json.loads(body)
        return listed

    async def watch(self, resource_version: str) -> AsyncIterator[Mapping[str, Any]]:
        """See ``SliceSource``."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        response = await self._get(query, seconds=_WATCH_SECONDS + 30)
        try:
            if response.status >= 400:
                _raise_for(response.status, await response.read())
            async for line in response.content:
                if line.strip():
                    yield json.loads(line)
        finally:
            response.close()

    async def _get(self, query: Mapping[str, str], *, seconds: int) -> aiohttp.ClientResponse:
        """The answer of the API server, its body unread."""
        client = await self._connected()
        request = await client.param_serialize(
            method="GET",
            resource_path=self._path,
            query_params=[("labelSelector", self._selector), *query.items()],
            auth_settings=["BearerToken"],
        )
        answer = await client.call_api(*request, _request_timeout=seconds)
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _connected(self) -> Any:
        # Imported here: who finds engines by a list does not need the client.
        from kubernetes.aio import config
        from kubernetes.aio.client import ApiClient

        if self._client is None:
            try:
                config.load_incluster_config()  # type: ignore[no-untyped-call]
            except config.ConfigException:
                await config.load_kube_config()  # type: ignore[no-untyped-call]
            self._client = ApiClient()
        return self._client

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.close()


def _raise_for(status: int, body: bytes) -> None:
    if status == _GONE:
        raise WatchExpired
    if status >= 400:
        raise RuntimeError(f"API server answered {status}: {body[:200].decode(errors='replace')}")
