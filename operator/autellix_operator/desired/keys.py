"""The engine's keys in the pods of engines and controllers: as a file, which is replaced in place when the Secret
changes, so that no pod has to be made anew."""

from typing import Any, Final

from autellix_operator.api.names import ACCEPTED_KEYS, Cluster
from autellix_operator.desired import pods

_FOLDER: Final = "/etc/autellix/engine-keys"
PATH: Final = f"{_FOLDER}/{ACCEPTED_KEYS}"
MOUNT: Final = {"name": "engine-keys", "mountPath": _FOLDER, "readOnly": True}


def volume(cluster: Cluster) -> dict[str, Any]:
    """What is mounted."""
    return pods.secret_volume("engine-keys", cluster.accepted_keys_secret, {ACCEPTED_KEYS: ACCEPTED_KEYS})
