"""What all pods of a cluster have in common."""

from typing import Any, Final

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


def literal(name: str, value: str) -> dict[str, Any]:
    """An environment variable."""
    return {"name": name, "value": value}


def from_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    """An environment variable from a Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def pod_name(name: str) -> dict[str, Any]:
    """An environment variable that holds the pod's name."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


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
