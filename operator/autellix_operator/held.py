"""Digests of what pods hold from their start on: when one changes, the pods are made anew. Pure functions."""

from collections.abc import Mapping
from typing import Any

from autellix_operator.api.names import ENVIRONMENT_DIGEST_ANNOTATION, TABLE_DIGEST_ANNOTATION, Component
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.secrets import certificate_digest, contents_digest
from autellix_operator.references import Referenced
from autellix_operator.tls.table import TableSecrets

Object = Mapping[str, Any]

_ANNOTATIONS = {
    Component.ENGINE: ENVIRONMENT_DIGEST_ANNOTATION,
    Component.CONTROLLER: TABLE_DIGEST_ANNOTATION,
}


def digests_of(
    salt: str, table: TableSecrets | None, referenced: Referenced, workloads: Mapping[Component, Object]
) -> Digests:
    """The digests for the pods of a cluster. ``table``: None if etcd runs elsewhere. ``workloads`` are the live ones.

    While an object is missing, pods stay what they are: those that serve hold what they got, and their successors
    could not start.
    """

    def held(component: Component) -> str:
        if component in referenced.incomplete and (kept := _live(workloads.get(component), _ANNOTATIONS[component])):
            return kept
        return contents_digest(salt, referenced.held.get(component, ()))

    return Digests(
        environment=held(Component.ENGINE),
        table_authority=certificate_digest(table.authority) if table else "",
        table_client=certificate_digest(table.client) if table else held(Component.CONTROLLER),
    )


def _live(workload: Object | None, annotation: str) -> str:
    if workload is None:
        return ""
    annotations = workload["spec"]["template"].get("metadata", {}).get("annotations") or {}
    return str(annotations.get(annotation, ""))
