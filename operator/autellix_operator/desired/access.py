"""Who the pods are and what they may do: service accounts, and the one right that controllers need."""

from collections.abc import Collection
from typing import Any

from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import Spec


def service_account(cluster: Cluster, component: Component) -> dict[str, Any]:
    """The ServiceAccount of a component's pods."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": cluster.metadata(component, cluster.child(component)),
        "automountServiceAccountToken": False,
    }


def controller_account(cluster: Cluster, spec: Spec) -> str:
    """Name of the ServiceAccount of the controllers."""
    return spec.controller.service_account_name or cluster.child(Component.CONTROLLER)


def controller_role(cluster: Cluster) -> dict[str, Any]:
    """Lets controllers find engines."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": cluster.metadata(Component.CONTROLLER, cluster.child(Component.CONTROLLER)),
        "rules": [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
        ],
    }


def controller_role_binding(cluster: Cluster, spec: Spec, in_use: Collection[str] = ()) -> dict[str, Any]:
    """Gives controllers their Role. ``in_use``: accounts of those that run, which are to be replaced if they have
    another one than the spec wants, and find engines until then."""
    name = cluster.child(Component.CONTROLLER)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": cluster.metadata(Component.CONTROLLER, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}
            for name in sorted({controller_account(cluster, spec), *in_use})
        ],
    }
