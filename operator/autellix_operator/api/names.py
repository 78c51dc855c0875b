"""Names and labels of what belongs to a cluster. They are part of the contract with controllers, engines and users."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from autellix_operator.api.spec import GROUP, KIND, VERSION

#: Owner of the fields we apply. Part of what is stored in the cluster: changing it would orphan them.
FIELD_MANAGER: Final = "autellix-operator"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
CLUSTER_LABEL: Final = f"{GROUP}/cluster"
#: On the pods of etcd and of controllers: they start anew when what they show and trust changes.
TABLE_DIGEST_ANNOTATION: Final = f"{GROUP}/table-credentials-digest"
#: On the pods of engines: they start anew when a Secret or ConfigMap behind their environment changes.
ENVIRONMENT_DIGEST_ANNOTATION: Final = f"{GROUP}/environment-digest"
#: On the engines' Service, and so on its EndpointSlices: the hash of the newest pod template. Controllers tell by it
#: which engines are about to be replaced.
ENGINE_REVISION_LABEL: Final = f"{GROUP}/engine-revision"
#: Key of the Secret that holds the engine key.
ENGINE_KEY: Final = "api-key"
#: Key of the Secret with all keys that engines accept, one a line, first the one in use.
ACCEPTED_KEYS: Final = "keys"
#: On that Secret: when all keys but the first are dropped.
FORMER_KEYS_ANNOTATION: Final = f"{GROUP}/former-keys-until"

#: On a cluster, with the value "true": nothing of it is changed until the annotation goes.
PAUSED_ANNOTATION: Final = f"{GROUP}/paused"


class Component(StrEnum):
    """The parts of a cluster."""

    ENGINE = "engine"
    CONTROLLER = "controller"
    ETCD = "etcd"


class Key(NamedTuple):
    """What names a cluster: the unit of work of the operator."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Identity of an AutellixCluster, and the names of its children."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> "Cluster":
        """The identity of a live resource."""
        metadata = resource["metadata"]
        return cls(metadata["namespace"], metadata["name"], metadata["uid"])

    def child(self, component: Component) -> str:
        """Name of the objects of a component."""
        return f"{self.name}-{component}"

    @property
    def service(self) -> str:
        """Name of the Service that clients use."""
        return self.name

    @property
    def engine_key_secret(self) -> str:
        """Name of the Secret with which controllers are let in by engines."""
        return f"{self.name}-engine-key"

    @property
    def accepted_keys_secret(self) -> str:
        """Name of the Secret with all keys that engines accept."""
        return f"{self.name}-engine-accepted-keys"

    @property
    def digest_salt_secret(self) -> str:
        """Name of the Secret with what goes into digests of contents."""
        return f"{self.name}-digest-salt"

    @property
    def table_authority_secret(self) -> str:
        """Name of the Secret with the authority that etcd and controllers trust."""
        return f"{self.child(Component.ETCD)}-ca"

    @property
    def table_server_secret(self) -> str:
        """Name of the Secret with the certificate of etcd's members."""
        return f"{self.child(Component.ETCD)}-server"

    @property
    def table_client_secret(self) -> str:
        """Name of the Secret with the certificate that controllers show to etcd."""
        return f"{self.child(Component.ETCD)}-client"

    def selector(self, component: Component) -> dict[str, str]:
        """Labels that select the pods of a component. Never changes: selectors of workloads are immutable."""
        return {
            "app.kubernetes.io/name": "autellix",
            "app.kubernetes.io/instance": self.name,
            COMPONENT_LABEL: component,
        }

    def selector_of_all(self) -> dict[str, str]:
        """Labels of everything that belongs to the cluster."""
        return {CLUSTER_LABEL: self.name, MANAGED_BY_LABEL: FIELD_MANAGER}

    def labels(self, component: Component) -> dict[str, str]:
        """Labels of an object of a component."""
        return {**self.selector(component), MANAGED_BY_LABEL: FIELD_MANAGER, CLUSTER_LABEL: self.name}

    def owner_reference(self) -> dict[str, Any]:
        """Makes an object go when the cluster goes."""
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def metadata(self, component: Component, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Metadata of a child: name, labels, owner."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(component),
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [self.owner_reference()],
        }
