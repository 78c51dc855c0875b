"""Who may open connections to the pods: one NetworkPolicy for each part.

Only incoming connections are ruled: engines download models, and where controllers' clients and name servers are is
the network's business. Probes of the kubelet are admitted by Kubernetes itself.
"""

from collections.abc import Iterable
from typing import Any

from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.api.surroundings import Peer
from autellix_operator.desired import controller, engine, etcd


def network_policies(cluster: Cluster, spec: Spec, operator_namespace: str) -> list[dict[str, Any]]:
    """The policies; none where the spec wants none. ``operator_namespace``: where the operator runs, which asks
    controllers and engines for their figures; empty if it does not run in Kubernetes."""
    wanted = spec.network_policy
    if wanted.mode == "Disabled":
        return []
    metrics = [_peer(each) for each in wanted.metrics_from]
    controllers = {"podSelector": {"matchLabels": cluster.selector(Component.CONTROLLER)}}
    members = {"podSelector": {"matchLabels": cluster.selector(Component.ETCD)}}
    metrics += _operator(operator_namespace)
    clients = [_peer(each) for each in wanted.clients_from]
    if clients:
        clients += metrics
    policies = [
        _policy(cluster, Component.ENGINE, [_rule([controllers, *metrics], engine.PORT)]),
        _policy(cluster, Component.CONTROLLER, [_rule(clients, controller.PORT)]),
    ]
    if spec.process_table.etcd.managed is not None:
        rules = [_rule([controllers, members], etcd.CLIENT_PORT), _rule([members], etcd.PEER_PORT)]
        rules += [_rule(metrics, etcd.METRICS_PORT)] if metrics else []
        policies.append(_policy(cluster, Component.ETCD, rules))
    return policies


def _policy(cluster: Cluster, component: Component, ingress: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": cluster.metadata(component, cluster.child(component)),
        "spec": {
            "podSelector": {"matchLabels": cluster.selector(component)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _rule(peers: Iterable[dict[str, Any]], port: int) -> dict[str, Any]:
    """Admits the peers to a port; everybody if there are none."""
    sources = list(peers)
    return {**({"from": sources} if sources else {}), "ports": [{"port": port, "protocol": "TCP"}]}


def _peer(peer: Peer) -> dict[str, Any]:
    if peer.cidr is not None:
        return {"ipBlock": {"cidr": peer.cidr}}
    found: dict[str, Any] = {}
    if peer.namespace_labels is not None:
        found["namespaceSelector"] = {"matchLabels": dict(peer.namespace_labels)}
    if peer.pod_labels is not None:
        found["podSelector"] = {"matchLabels": dict(peer.pod_labels)}
    return found


def _operator(namespace: str) -> list[dict[str, Any]]:
    if not namespace:
        return []
    return [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "autellix-operator"}},
        }
    ]
