"""How many pods of each part an eviction may take at a time."""

from typing import Any

from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import Spec


def disruption_budgets(cluster: Cluster, spec: Spec) -> list[dict[str, Any]]:
    """A PodDisruptionBudget for each part."""
    budgets = {
        Component.ENGINE: spec.engine.pod_disruption_budget.max_unavailable,
        Component.CONTROLLER: spec.controller.pod_disruption_budget.max_unavailable,
    }
    if spec.process_table.etcd.managed is not None:
        # Of three members the other two go on; a single one starts again elsewhere, and controllers bridge the gap.
        budgets[Component.ETCD] = 1
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": cluster.metadata(component, cluster.child(component)),
            "spec": {
                "maxUnavailable": budget,
                "selector": {"matchLabels": cluster.selector(component)},
                # An engine that does not start must not keep its node from being drained. Of etcd's members one that is
                # away counts: another one less, and there is no majority.
                "unhealthyPodEvictionPolicy": "IfHealthyBudget" if component == Component.ETCD else "AlwaysAllow",
            },
        }
        for component, budget in budgets.items()
    ]
