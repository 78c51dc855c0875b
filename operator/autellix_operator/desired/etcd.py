"""The process table's etcd: a StatefulSet with a claim for each member, its headless Service, its ServiceAccount."""

from typing import Any, Final

from autellix_operator.api.base import size_in_bytes
from autellix_operator.api.names import TABLE_DIGEST_ANNOTATION, Cluster, Component
from autellix_operator.api.process_table import Etcd, ManagedEtcd
from autellix_operator.api.spec import Spec
from autellix_operator.desired import pods
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.template import merge_pod_template

CLIENT_PORT: Final = 2379
PEER_PORT: Final = 2380
#: Metrics and health in plain HTTP: neither kubelet nor Prometheus has a client certificate.
METRICS_PORT: Final = 2381
_DATA: Final = "/var/lib/etcd"
_TLS: Final = "/etc/etcd/tls"
_VOLUME: Final = "data"
#: etcd advises against more.
_MAX_QUOTA_BYTES: Final = 8 << 30


def etcd_stateful_set(cluster: Cluster, spec: Spec, etcd: ManagedEtcd, image: str, digests: Digests) -> dict[str, Any]:
    """The StatefulSet. Raises InvalidSpec."""
    selector = cluster.selector(Component.ETCD)
    name = cluster.child(Component.ETCD)
    template = {
        "metadata": {
            "labels": cluster.labels(Component.ETCD),
            "annotations": {
                TABLE_DIGEST_ANNOTATION: digests.table_authority,
                "kubectl.kubernetes.io/default-container": "etcd",
            },
        },
        "spec": {
            **pods.all_pods(spec),
            "serviceAccountName": name,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "topologySpreadConstraints": pods.spread(selector),
            "containers": [_container(cluster, etcd, image)],
            "volumes": [pods.secret_volume("tls", cluster.table_server_secret)],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": cluster.metadata(Component.ETCD, name),
        "spec": {
            "replicas": etcd.replicas,
            "serviceName": name,
            "selector": {"matchLabels": selector},
            # Members find one another before any of them is ready.
            "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": etcd.when_deleted, "whenScaled": "Retain"},
            "template": merge_pod_template(
                template, etcd.template, container="etcd", field="spec.processTable.etcd.managed.template"
            ),
            "volumeClaimTemplates": [_claim(cluster, etcd)],
        },
    }


def etcd_service(cluster: Cluster) -> dict[str, Any]:
    """The headless Service that gives members their names, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": cluster.metadata(Component.ETCD, cluster.child(Component.ETCD)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": cluster.selector(Component.ETCD),
            "ports": [
                {"name": "client", "port": CLIENT_PORT, "targetPort": "client", "protocol": "TCP"},
                {"name": "peer", "port": PEER_PORT, "targetPort": "peer", "protocol": "TCP"},
            ],
        },
    }


def table_url(cluster: Cluster, etcd: Etcd) -> str:
    """The process table as controllers take it."""
    if etcd.endpoints is not None:
        return ("etcd" if etcd.tls is None else "etcds") + "://" + ",".join(etcd.endpoints)
    return f"etcds://{cluster.child(Component.ETCD)}.{cluster.namespace}.svc:{CLIENT_PORT}"


def hosts(cluster: Cluster, etcd: ManagedEtcd) -> list[str]:
    """Names by which members are reached. One for each member, not one for all: etcd compares them with the address
    that a peer comes from, and name servers need not know a name for an address."""
    service = f"{cluster.child(Component.ETCD)}.{cluster.namespace}.svc"
    return [service, *(f"{member}.{service}" for member in _members(cluster, etcd)), "localhost", "127.0.0.1"]


def claim_names(cluster: Cluster, etcd: ManagedEtcd) -> list[str]:
    """Names of the members' volume claims, as Kubernetes makes them from the StatefulSet."""
    return [f"{claim_prefix(cluster)}{index}" for index in range(etcd.replicas)]


def claim_prefix(cluster: Cluster) -> str:
    """What those names begin with; a member's number follows."""
    return f"{_VOLUME}-{cluster.child(Component.ETCD)}-"


def quota_bytes(size: str) -> int:
    """Most that the database may hold on a volume of this size: half, for the write-ahead log and snapshots need room
    too."""
    return min(size_in_bytes(size) // 2, _MAX_QUOTA_BYTES)


def _container(cluster: Cluster, etcd: ManagedEtcd, image: str) -> dict[str, Any]:
    service = cluster.child(Component.ETCD)
    members = _members(cluster, etcd)

    def peer_url(member: str) -> str:
        return f"https://{member}.{service}.{cluster.namespace}.svc:{PEER_PORT}"

    return {
        "name": "etcd",
        "image": image,
        "imagePullPolicy": etcd.image_pull_policy,
        "command": ["etcd"],
        "args": [
            "--name=$(POD_NAME)",
            f"--data-dir={_DATA}/data",
            f"--listen-client-urls=https://0.0.0.0:{CLIENT_PORT}",
            f"--advertise-client-urls=https://$(POD_NAME).{service}.{cluster.namespace}.svc:{CLIENT_PORT}",
            f"--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}",
            f"--listen-peer-urls=https://0.0.0.0:{PEER_PORT}",
            f"--initial-advertise-peer-urls={peer_url('$(POD_NAME)')}",
            f"--cert-file={_TLS}/tls.crt",
            f"--key-file={_TLS}/tls.key",
            f"--trusted-ca-file={_TLS}/ca.crt",
            "--client-cert-auth",
            f"--peer-cert-file={_TLS}/tls.crt",
            f"--peer-key-file={_TLS}/tls.key",
            f"--peer-trusted-ca-file={_TLS}/ca.crt",
            "--peer-client-cert-auth",
            # Controllers have a certificate too, and are no members.
            f"--peer-cert-allowed-cn={service}",
            "--initial-cluster=" + ",".join(f"{member}={peer_url(member)}" for member in members),
            f"--initial-cluster-token={cluster.uid}",
            "--initial-cluster-state=new",
            # Readers resume within seconds: five minutes of history are plenty.
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=5m",
            f"--quota-backend-bytes={quota_bytes(etcd.storage.size)}",
        ],
        "env": [pods.pod_name("POD_NAME")],
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT, "protocol": "TCP"},
            {"name": "peer", "containerPort": PEER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "startupProbe": pods.http_probe("/readyz", "metrics", period=1, failures=300),
        "livenessProbe": pods.http_probe("/livez", "metrics", period=10, failures=6, timeout=5),
        "readinessProbe": pods.http_probe("/readyz", "metrics", period=5, failures=3, timeout=5),
        "resources": {"requests": pods.requests("100m", "128Mi")},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": _DATA},
            {"name": "tls", "mountPath": _TLS, "readOnly": True},
        ],
    }


def _members(cluster: Cluster, etcd: ManagedEtcd) -> list[str]:
    return [f"{cluster.child(Component.ETCD)}-{index}" for index in range(etcd.replicas)]


def _claim(cluster: Cluster, etcd: ManagedEtcd) -> dict[str, Any]:
    storage = etcd.storage
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _VOLUME, "labels": cluster.labels(Component.ETCD)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage.size}},
            **({"storageClassName": storage.class_name} if storage.class_name else {}),
        },
    }
