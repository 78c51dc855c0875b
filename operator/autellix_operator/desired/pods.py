"""What all pods of a cluster have in common."""

from collections.abc import Mapping
from typing import Any, Final

from autellix_operator.api.spec import Spec

#: The restricted level of Pod Security asks for all of this. 65532 is the customary "nonroot" user.
USER_ID: Final = 65532
POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def all_pods(spec: Spec) -> dict[str, Any]:
    """Fields of every pod of a cluster."""
    return {
        # Names of Services as environment variables would only fill the environment that programs read settings from.
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        **(
            {"imagePullSecrets": [{"name": each.name} for each in spec.image_pull_secrets]}
            if spec.image_pull_secrets
            else {}
        ),
        **({"priorityClassName": spec.priority_class_name} if spec.priority_class_name else {}),
    }


def literal(name: str, value: str) -> dict[str, Any]:
    """An environment variable."""
    return {"name": name, "value": value}


def from_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    """An environment variable from a Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def from_config_map(name: str, config_map: str, key: str) -> dict[str, Any]:
    """An environment variable from a ConfigMap."""
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


def pod_name(name: str) -> dict[str, Any]:
    """An environment variable that holds the pod's name."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def secret_volume(name: str, secret: str, items: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A volume with what a Secret holds, or with some of its keys under these names; for the pod's group to read."""
    return {"name": name, "secret": secret_source(secret, items) | {"defaultMode": 0o440}}


def secret_source(secret: str, items: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A Secret, or some of its keys under these names."""
    chosen = [{"key": key, "path": path} for key, path in (items or {}).items()]
    return {"secretName": secret, **({"items": chosen} if chosen else {})}


def http_probe(path: str, port: str, *, period: int, failures: int, timeout: int = 2) -> dict[str, Any]:
    """A probe by HTTP; times in seconds."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def spread(selector: dict[str, str]) -> list[dict[str, Any]]:
    """Keeps pods of one component on different nodes where there are several."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector},
        }
    ]


def requests(cpu: str, memory: str | None = None) -> dict[str, str]:
    """What a container is promised. Never nothing: a pod without requests gets almost no CPU beside a busy engine."""
    return {"cpu": cpu, **({"memory": memory} if memory else {})}
