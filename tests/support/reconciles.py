"""What tests of reconciles over an API in memory have in common."""

from datetime import UTC, datetime
from typing import Any

from autellix_operator.api.names import Key
from autellix_operator.desired.objects import Images
from autellix_operator.kube.applier import AUTELLIX_CLUSTER
from support.memory_applier import MemoryApplier

Json = Any

KEY = Key("space", "demo")
IMAGES = Images(engine="engine:1", controller="controller:1", etcd="etcd:1")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def status(api: MemoryApplier) -> Json:
    """The status of the cluster."""
    return api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]


def condition(api: MemoryApplier, type_: str) -> Json:
    """A condition of the cluster; None if there is none."""
    return next((each for each in status(api)["conditions"] if each["type"] == type_), None)
