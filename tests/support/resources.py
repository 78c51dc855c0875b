"""AutellixCluster resources for machines without a GPU and without a model hub.

The engine's image holds our code only. vLLM and the tiny model come from the node, read-only, through a claim and the
resource's own pod template: the same way in which a user would change the pods.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from onenode.manifests import node_mounts, node_volume
from support.tiny_model import tiny_model

SERVED_MODEL = "tiny"
#: A file with an AutellixCluster whose ``spec.model`` and ``spec.engine`` suit a cluster of one's own.
SAMPLE_VARIABLE = "AUTELLIX_SAMPLE"
#: The tiny model answers in milliseconds where a real one takes seconds: its queues are as much shorter.
_TINY_SCHEDULING = {
    "queueBoundsMilliseconds": [100 * 2**level for level in range(7)],
    "minimumRunMilliseconds": 20,
}
_ENGINE_MEMORY = "2500Mi"
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def intent(live: dict[str, Any]) -> dict[str, Any]:
    """An object as those who write it want it: without its status, which Kubernetes may write at any time."""
    metadata = {name: live["metadata"][name] for name in ("uid", "labels", "annotations") if name in live["metadata"]}
    return {name: part for name, part in live.items() if name != "status"} | {"metadata": metadata}


def autellix_cluster(
    name: str,
    namespace: str,
    *,
    policy: str = "Plas",
    engines: int = 1,
    controllers: int = 1,
    slots: int = 2,
    model: Path | None = None,
    network_policy: Mapping[str, Any] | None = None,
    **controller: Any,
) -> dict[str, Any]:
    """A cluster that serves the tiny model on CPUs; ``slots`` is how many calls an engine runs at the same time.

    ``network_policy`` is ``spec.networkPolicy``; ``controller`` holds more fields of ``spec.controller``.
    """
    sample = os.environ.get(SAMPLE_VARIABLE)
    served = _of_sample(Path(sample)) if sample else _of_node(model or tiny_model())
    return {
        "apiVersion": "autellix.dev/v1alpha1",
        "kind": "AutellixCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {**served["model"], "servedName": SERVED_MODEL},
            "engine": {**served["engine"], "replicas": engines, "maxSequences": slots, "maxModelLength": 4096},
            "scheduling": {"policy": policy, **_TINY_SCHEDULING},
            "controller": {"replicas": controllers, **controller},
            "networkPolicy": network_policy or {},
        },
    }


def _of_node(model: Path) -> dict[str, Any]:
    engine = {
        "extraArgs": ["--enforce-eager"],
        "drainSeconds": 15,
        "startupTimeoutSeconds": 600,
        "swap": {"size": "128Mi"},
        "template": engine_template([model]),
    }
    return {"model": {"name": str(model)}, "engine": engine}


def _of_sample(file: Path) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(file.read_text())["spec"]
    return {"model": spec["model"], "engine": spec.get("engine", {})}


def engine_template(folders: list[Path]) -> dict[str, Any]:
    """Lends an engine the node's vLLM: this Python, its environment, and more ``folders``, all read-only."""
    environment = Path(sys.prefix)
    mounts = node_mounts([Path("/usr"), Path(sys.base_prefix), environment, *folders])
    # The image may keep others out of a folder on the way, as Debian does with /root: an empty one takes its place.
    tops = sorted({Path(mount["mountPath"]).parts[1] for mount in mounts} - {"usr", "tmp"})
    variables = {
        "PATH": f"{environment}/bin:{_DEFAULT_PATH}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, reserved at the start
        # Left alone, every engine of a node would bind itself to the same first core.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {
        "spec": {
            "containers": [
                {
                    "name": "engine",
                    "env": [{"name": key, "value": value} for key, value in variables.items()],
                    "resources": {"requests": {"cpu": "200m", "memory": _ENGINE_MEMORY}},
                    # Engines load side by side on few cores: one that serves may answer late for a while.
                    "readinessProbe": {"periodSeconds": 2, "failureThreshold": 15},
                    "startupProbe": {"periodSeconds": 2, "failureThreshold": 300},
                    "volumeMounts": [*({"name": f"top-{top}", "mountPath": f"/{top}"} for top in tops), *mounts],
                }
            ],
            "volumes": [*({"name": f"top-{top}", "emptyDir": {}} for top in tops), node_volume()],
        }
    }
