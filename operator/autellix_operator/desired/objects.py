"""All objects of a cluster, in the order in which they are applied."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.desired.access import controller_role, controller_role_binding, service_account
from autellix_operator.desired.controller import client_service, controller_deployment
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.disruption import disruption_budgets
from autellix_operator.desired.engine import engine_deployment, engine_service
from autellix_operator.desired.etcd import etcd_service, etcd_stateful_set
from autellix_operator.desired.monitoring import monitoring_objects
from autellix_operator.desired.network import network_policies


@dataclass(frozen=True, slots=True)
class Images:
    """Images that are used where the spec names none."""

    engine: str
    controller: str
    etcd: str


def desired_objects(
    cluster: Cluster,
    spec: Spec,
    images: Images,
    digests: Digests,
    operator_namespace: str = "",
    engine_revision: str | None = None,
    accounts_in_use: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Everything that is applied for a cluster: what a pod needs comes before the pod.

    ``operator_namespace``: where the operator runs, for the policies of the network. ``engine_revision``: Kubernetes'
    hash of the engines' newest pod template, if it has one. ``accounts_in_use``: of controllers that
    run. The same input gives the same output. Raises InvalidSpec if a pod template of the spec cannot be merged.
    """
    managed = spec.process_table.etcd.managed
    objects = [
        *([] if spec.engine.service_account_name else [service_account(cluster, Component.ENGINE)]),
        *([] if spec.controller.service_account_name else [service_account(cluster, Component.CONTROLLER)]),
        controller_role(cluster),
        controller_role_binding(cluster, spec, accounts_in_use),
        *disruption_budgets(cluster, spec),
        *network_policies(cluster, spec, operator_namespace),
        engine_service(cluster, engine_revision),
        client_service(cluster, spec),
        engine_deployment(cluster, spec, spec.engine.image or images.engine, digests),
        controller_deployment(cluster, spec, spec.controller.image or images.controller, digests),
        *monitoring_objects(cluster, spec),
    ]
    if managed is None:
        return objects
    return [
        service_account(cluster, Component.ETCD),
        etcd_service(cluster),
        etcd_stateful_set(cluster, spec, managed, managed.image or images.etcd, digests),
        *objects,
    ]
