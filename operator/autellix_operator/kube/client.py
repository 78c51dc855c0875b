"""The Applier over the official Kubernetes client."""

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.dynamic import DynamicClient

from autellix_operator.kube.applier import ApiError, Conflict, NotFound, Object, Refused, Resource

#: No single request should hold up a worker for longer.
_REQUEST_SECONDS: Final = 30
_PAGE: Final = 500
_DISCOVERY_SECONDS: Final = 60.0


class NoCredentials(Exception):
    """There is neither a service account nor a kubeconfig."""


class KubernetesApplier:
    """Applies objects server-side, as one field manager.

    Paths come from the resource, not from discovery: that saves a second of start-up, and a cache file that the
    dynamic client would share between clusters. ``on_error`` is told the HTTP status of each failed request, 0 if
    there was no answer. With ``dry_run`` an apply only tells what it would lead to.
    """

    def __init__(
        self,
        api: client.ApiClient,
        field_manager: str,
        on_error: Callable[[int], None],
        *,
        dry_run: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client: Any = DynamicClient(api)  # type: ignore[no-untyped-call]
        self._field_manager = field_manager
        self._on_error = on_error
        self._clock = clock
        self._dry_run = {"dry_run": "All"} if dry_run else {}
        self._kinds: dict[str, tuple[float, frozenset[str]]] = {}

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """See Applier."""
        return await self._object("get", resource.path(namespace, name))

    async def list(self, resource: Resource, namespace: str, labels: Mapping[str, str]) -> "list[Object]":
        """See Applier."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found: list[Object] = []
        page: str | None = None
        while True:
            answer = await self._request(
                "get", resource.path(namespace), label_selector=selector, limit=_PAGE, _continue=page
            )
            found += answer["items"]
            if not (page := answer["metadata"].get("continue")):
                return found

    async def serves(self, resource: Resource) -> bool:
        """See Applier. What a group has is asked for again after a while: it may be installed later."""
        group = resource.api_version
        asked, kinds = self._kinds.get(group, (-math.inf, frozenset()))
        if self._clock() - asked > _DISCOVERY_SECONDS:
            try:
                answer = await self._request("get", f"/apis/{group}")
            except NotFound:
                kinds = frozenset()
            else:
                kinds = frozenset(each["kind"] for each in answer["resources"])
            self._kinds[group] = self._clock(), kinds
        return resource.kind in kinds

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """See Applier."""
        namespace = manifest["metadata"]["namespace"]
        return await self._object(
            "post", resource.path(namespace), body=dict(manifest), field_manager=self._field_manager
        )

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        """See Applier."""
        return await self._apply(resource, manifest, None)

    async def apply_status(self, resource: Resource, manifest: Object) -> Object:
        """See Applier."""
        return await self._apply(resource, manifest, "status")

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """See Applier."""
        metadata = manifest["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        return await self._object("put", path, body=dict(manifest), field_manager=self._field_manager)

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """See Applier."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("delete", resource.path(namespace, name), body=body)
        except (NotFound, Conflict):
            return

    async def _apply(self, resource: Resource, manifest: Object, subresource: str | None) -> Object:
        metadata = manifest["metadata"]
        return await self._object(
            "patch",
            resource.path(metadata["namespace"], metadata["name"], subresource),
            body=dict(manifest),
            content_type="application/apply-patch+yaml",
            field_manager=self._field_manager,
            force_conflicts=True,
            **self._dry_run,
        )

    async def _object(self, method: str, path: str, **parameters: Any) -> Object:
        answer: Object = await self._request(method, path, **parameters)
        return answer

    async def _request(self, method: str, path: str, **parameters: Any) -> Any:
        try:
            answer = await self._client.request(
                method, path, serialize=False, _request_timeout=_REQUEST_SECONDS, **parameters
            )
            return await answer.json()
        except ApiException as error:
            raise self._translated(error) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self._on_error(0)
            raise ApiError(
                0, "Unreachable", f"no answer from the API server: {error or type(error).__name__}"
            ) from error

    def _translated(self, error: ApiException) -> ApiError:
        reason, message = str(error.reason), str(error.reason)
        try:
            status = json.loads(error.body or "")
            reason, message = status.get("reason") or reason, status.get("message") or message
        except (TypeError, ValueError):
            message = str(error.body or error.reason)
        self._on_error(error.status)
        kinds: dict[int, type[ApiError]] = {400: Refused, 403: Refused, 404: NotFound, 409: Conflict, 422: Refused}
        kind = kinds.get(error.status, ApiError)
        # An object of a type that the server knows, with fields that it does not, is a 500 in server-side apply.
        if error.status == 500 and "failed to create typed patch object" in message:
            kind = Refused
        return kind(error.status, reason, message)


@asynccontextmanager
async def connect() -> AsyncIterator[client.ApiClient]:
    """The API client with the pod's service account or, outside of a pod, with the usual kubeconfig.

    Raises NoCredentials.
    """
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        try:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise NoCredentials(f"neither a service account nor a kubeconfig: {error}") from error
    async with client.ApiClient(configuration) as api:
        yield api
