"""Kubernetes objects that every lab starts with, and those that lend the node's files to pods."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onenode.layout import DNS_SERVICE_ADDRESS, NODE_ADDRESS

NODE_ROOT = "node-root"
_NODE_ROOT_CLASS = "node-root"


def cluster_objects() -> dict[str, Any]:
    """Name service, default storage and the rights of the lab's own users, as one List."""
    watched_by_dns = {"": ["services", "namespaces", "endpoints", "pods"], "discovery.k8s.io": ["endpointslices"]}
    watched_for_policies = {"": ["namespaces", "pods"], "networking.k8s.io": ["networkpolicies"]}
    return as_list(
        [
            *_dns(),
            *_may_watch("dns", "system:coredns", watched_by_dns),
            *_may_watch("policies", "system:kube-network-policies", watched_for_policies),
            _default_storage_class(),
        ]
    )


def as_list(objects: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Several objects as one that ``kubectl apply`` takes."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def node_root(namespace: str) -> list[dict[str, Any]]:
    """A claim ``node-root`` in a namespace: the node's file system, read-only, for pods that may not use hostPath.

    Restricted pod security forbids hostPath volumes but allows claims. Mount it with ``node_volume`` and
    ``node_mounts``, and wait until it is Bound before the first pod: one that comes earlier is retried after seconds.
    """
    name = f"{NODE_ROOT}-{namespace}"
    terms: dict[str, Any] = {"accessModes": ["ReadOnlyMany"], "storageClassName": _NODE_ROOT_CLASS}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **terms,
            "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/"},
            "claimRef": {"namespace": namespace, "name": NODE_ROOT},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": NODE_ROOT, "namespace": namespace},
        "spec": {**terms, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
    }
    return [volume, claim]


def node_volume() -> dict[str, Any]:
    """The entry of a pod's ``volumes`` for the claim that ``node_root`` makes."""
    return {"name": NODE_ROOT, "persistentVolumeClaim": {"claimName": NODE_ROOT, "readOnly": True}}


def node_mounts(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Entries of a container's ``volumeMounts``: folders of the node, read-only, at the paths they have there.

    A folder inside another one of them needs no mount of its own and gets none.
    """
    wanted = sorted(set(folders))
    outermost = [folder for folder in wanted if not any(other in folder.parents for other in wanted)]
    return [
        {"name": NODE_ROOT, "mountPath": str(folder), "subPath": str(folder).lstrip("/"), "readOnly": True}
        for folder in outermost
    ]


def _dns() -> list[dict[str, Any]]:
    """CoreDNS is a process of the node: a Service without selector leads to it."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS_SERVICE_ADDRESS, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [NODE_ADDRESS]}],
        },
    ]


def _may_watch(name: str, user: str, kinds: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Lets a user list and watch kinds of objects, given by API group, in the whole cluster."""
    rbac, role = "rbac.authorization.k8s.io", f"autellix-lab:{name}"
    rules = [{"apiGroups": [group], "resources": kind, "verbs": ["list", "watch"]} for group, kind in kinds.items()]
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        },
    ]


def _default_storage_class() -> dict[str, Any]:
    """Claims get a folder of the lab, made by the controller manager's host path provisioner."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/host-path",
        "reclaimPolicy": "Delete",
    }
