"""What kopf watches. Handlers only put keys on the queue.

kopf offers two ways to a level-based operator. A daemon for each resource brings serial work and retries, and a
finalizer on every cluster: with the operator gone, no cluster could be deleted. Event handlers need neither finalizer
nor annotations, and nothing of ours has to be done at deletion. So events mark a key as dirty, and a queue of our own
(`workqueue`) serves keys.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from autellix_operator.api.names import CLUSTER_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL, Key
from autellix_operator.api.spec import GROUP
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, CONFIG_MAP, OBSERVED, OWNED, SECRET, Resource
from autellix_operator.workers import COALESCE_SECONDS, ReferenceIndex
from autellix_operator.workqueue import WorkQueue

#: Objects of one answer to a list.
_PAGE: Final = 500
#: Secrets nobody refers to, often large and many: not even listed.
_UNINTERESTING_SECRETS: Final = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"
#: One in every namespace.
_UNINTERESTING_CONFIG_MAPS: Final = "metadata.name!=kube-root-ca.crt"


def registry(
    queue: WorkQueue, references: ReferenceIndex, seen: Callable[[Key], None] = lambda key: None
) -> kopf.OperatorRegistry:
    """Handlers for clusters, for their children, and for objects that clusters refer to. ``seen`` is told each cluster
    that exists or changes."""
    handlers = kopf.OperatorRegistry()

    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    async def cluster_changed(namespace: str | None, name: str, **_: Any) -> None:
        key = Key(str(namespace), name)
        queue.add(key, COALESCE_SECONDS)
        seen(key)

    async def child_changed(namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
        queue.add(Key(str(namespace), labels[CLUSTER_LABEL]), COALESCE_SECONDS)

    async def secret_changed(namespace: str | None, name: str, labels: Mapping[str, str], **_: Any) -> None:
        if labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER and CLUSTER_LABEL in labels:
            queue.add(Key(str(namespace), labels[CLUSTER_LABEL]), COALESCE_SECONDS)
        for key in references.clusters(str(namespace), SECRET.kind, name):
            queue.add(key, COALESCE_SECONDS)

    async def config_map_changed(namespace: str | None, name: str, **_: Any) -> None:
        for key in references.clusters(str(namespace), CONFIG_MAP.kind, name):
            queue.add(key, COALESCE_SECONDS)

    # A registry of one's own has no login handler.
    kopf.on.login(registry=handlers)(login)
    kopf.on.event(*_names(AUTELLIX_CLUSTER), registry=handlers)(cluster_changed)
    kopf.on.event(*_names(SECRET), registry=handlers)(secret_changed)
    kopf.on.event(*_names(CONFIG_MAP), registry=handlers)(config_map_changed)
    for resource in _labelled():
        kopf.on.event(
            *_names(resource),
            registry=handlers,
            id=f"{resource.plural}-changed",
            labels={CLUSTER_LABEL: kopf.PRESENT, MANAGED_BY_LABEL: FIELD_MANAGER},
        )(child_changed)
    return handlers


def settings(*, request_seconds: float = 30.0) -> kopf.OperatorSettings:
    """kopf's settings where its defaults do not fit."""
    chosen = kopf.OperatorSettings()
    # The server ends a watch before the client gives it up; bookmarks tell a quiet watch from a dead one in between.
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 10
    # The first lists come in pages: Secrets of all namespaces at once may be more than the pod's memory.
    chosen.watching.chunk_size = _PAGE
    for resource in _labelled():
        chosen.watching.label_selectors[_names(resource)] = f"{MANAGED_BY_LABEL}={FIELD_MANAGER},{CLUSTER_LABEL}"
    chosen.watching.field_selectors[_names(SECRET)] = _UNINTERESTING_SECRETS
    chosen.watching.field_selectors[_names(CONFIG_MAP)] = _UNINTERESTING_CONFIG_MAPS
    chosen.networking.request_timeout = request_seconds
    chosen.networking.enforce_retry_after = True
    # Our Events come from the reconciler, one a change.
    chosen.posting.enabled = False
    # One operator is active; peering would need a CRD of kopf's own.
    chosen.peering.standalone = True
    # Namespaces and kinds are fixed: no right to list namespaces and CRDs is needed.
    chosen.scanning.disabled = True
    # Not used with event handlers only; under our name in case that changes.
    chosen.persistence.finalizer = f"{GROUP}/operator"
    return chosen


def _labelled() -> list[Resource]:
    return [resource for resource in (*OWNED, *OBSERVED) if resource is not SECRET]


def _names(resource: Resource) -> tuple[str, str, str]:
    group, _, version = resource.api_version.rpartition("/")
    return group, version, resource.plural
