"""What the reconciler needs of the Kubernetes API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from autellix_operator.api.spec import GROUP, KIND, PLURAL, VERSION

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A namespaced kind of object."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str, name: str | None = None, subresource: str | None = None) -> str:
        """Path of the collection, of an object or of its subresource."""
        prefix = "/apis" if "/" in self.api_version else "/api"
        parts = [prefix, self.api_version, "namespaces", namespace, self.plural, name, subresource]
        return "/".join(part for part in parts if part)


AUTELLIX_CLUSTER: Final = Resource(f"{GROUP}/{VERSION}", KIND, PLURAL)
SECRET: Final = Resource("v1", "Secret", "secrets")
SERVICE: Final = Resource("v1", "Service", "services")
SERVICE_ACCOUNT: Final = Resource("v1", "ServiceAccount", "serviceaccounts")
DEPLOYMENT: Final = Resource("apps/v1", "Deployment", "deployments")
REPLICA_SET: Final = Resource("apps/v1", "ReplicaSet", "replicasets")
STATEFUL_SET: Final = Resource("apps/v1", "StatefulSet", "statefulsets")
ROLE: Final = Resource("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING: Final = Resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
POD: Final = Resource("v1", "Pod", "pods")
CLAIM: Final = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT: Final = Resource("v1", "Event", "events")
LEASE: Final = Resource("coordination.k8s.io/v1", "Lease", "leases")
CONFIG_MAP: Final = Resource("v1", "ConfigMap", "configmaps")
DISRUPTION_BUDGET: Final = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY: Final = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
SERVICE_MONITOR: Final = Resource("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
POD_MONITOR: Final = Resource("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
PROMETHEUS_RULE: Final = Resource("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules")

#: Kinds of which we make objects, and remove those that are no longer wanted.
OWNED: Final = (
    SECRET,
    SERVICE_ACCOUNT,
    SERVICE,
    ROLE,
    ROLE_BINDING,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    STATEFUL_SET,
    DEPLOYMENT,
)
#: Of these every cluster has the same objects, whatever its spec: they go with their owner, and never before.
PERMANENT: Final = (ROLE, ROLE_BINDING, DEPLOYMENT)
#: The same, of APIs that a Kubernetes need not have.
OPTIONAL: Final = (SERVICE_MONITOR, POD_MONITOR, PROMETHEUS_RULE)
#: Kinds that others make for us and that tell why something does not work.
OBSERVED: Final = (POD, REPLICA_SET, CLAIM)


class ApiError(Exception):
    """The API server answered with an error, or not at all."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; 0 if there was no answer."""
        self.reason = reason
        """Kubernetes' word for the error, as "NotFound" or "Invalid"."""


class NotFound(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """Somebody else was first: the object exists already or has changed."""


class Refused(ApiError):
    """The object is not valid, or we may not write it. Trying again does not help."""


class Applier(Protocol):
    """Reads and writes of one field manager. Each method raises ApiError or one of its kinds."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """A live object. Raises NotFound."""
        ...

    async def list(self, resource: Resource, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """All objects with these labels."""
        ...

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server has this kind of object."""
        ...

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Makes an object. Raises Conflict if it exists."""
        ...

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        """Makes the fields of the manifest so, and removes fields that an earlier manifest had. Writes nothing if all
        is so."""
        ...

    async def apply_status(self, resource: Resource, manifest: Object) -> Object:
        """The same for the status subresource."""
        ...

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """Replaces an object as a whole. Raises Conflict if it has another resourceVersion than the manifest."""
        ...

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Removes exactly this object; does nothing if it is gone or another one has its name."""
        ...
