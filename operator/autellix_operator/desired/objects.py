"""All objects of a cluster, in the order in which they are applied."""

from dataclasses import dataclass
from typing import Any

from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.desired.access import controller_role, controller_role_binding, service_account
from autellix_operator.desired.controller import client_service, controller_deployment
from autellix_operator.desired.engine import engine_deployment, engine_service
from autellix_operator.desired.etcd import etcd_service, etcd_stateful_set


@dataclass(frozen=True, slots=True)
class Images:
    """Images that are used where the spec names none."""

    engine: str
    controller: str
    etcd: str


def desired_objects(cluster: Cluster, spec: Spec, images: Images, key_digest: str) -> list[dict[str, Any]]:
    """Everything that is applied for a cluster: what a pod needs comes before the pod.

    The same input gives the same output. Raises InvalidSpec if a pod template of the spec cannot be merged.
    """
    managed = spec.process_table.etcd.managed
    objects = [
        service_account(cluster, Component.ENGINE),
        service_account(cluster, Component.CONTROLLER),
        controller_role(cluster),
        controller_role_binding(cluster),
        engine_service(cluster),
        client_service(cluster, spec),
        engine_deployment(cluster, spec, spec.engine.image or images.engine, key_digest),
        controller_deployment(cluster, spec, spec.controller.image or images.controller, key_digest),
    ]
    if managed is None:
        return objects
    return [
        service_account(cluster, Component.ETCD),
        etcd_service(cluster),
        etcd_stateful_set(cluster, managed, managed.image or images.etcd),
        *objects,
    ]
