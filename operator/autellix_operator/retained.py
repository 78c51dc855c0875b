"""Volume claims of etcd members that an earlier process table of the cluster's name left. Pure functions.

A member that finds data goes on as what it was: of another table, with as many members as there were then. It ignores
what its arguments say of the others, so those would form a second table beside it, and controllers would meet both.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autellix_operator.api.conditions import Reason
from autellix_operator.api.names import Cluster
from autellix_operator.api.process_table import ManagedEtcd
from autellix_operator.desired.etcd import claim_names, claim_prefix
from autellix_operator.diagnosis import Diagnosis

Object = Mapping[str, Any]


def claims_in_the_way(cluster: Cluster, etcd: ManagedEtcd, claims: Iterable[Object]) -> Diagnosis | None:
    """What keeps members from being started anew; None if there are volumes for all of them or for none."""
    named = re.compile(re.escape(claim_prefix(cluster)) + r"\d+")
    found = {each["metadata"]["name"]: each for each in claims if named.fullmatch(each["metadata"]["name"])}
    if not found or found.keys() == set(claim_names(cluster, etcd)):
        return None
    names = ", ".join(sorted(found))
    if all(map(_goes, found.values())):
        return Diagnosis(Reason.STARTING, f"waits until volume claims of the former process table are gone: {names}")
    return Diagnosis(
        Reason.NAME_CONFLICT,
        f"volume claims of a former process table are there, of another number of members: {names}; "
        f"spec.processTable.etcd.managed.replicas is {etcd.replicas}. Set it to their number, or remove them",
    )


def _goes(claim: Object) -> bool:
    metadata = claim["metadata"]
    # Kubernetes makes claims that go with their StatefulSet its dependents.
    return "deletionTimestamp" in metadata or bool(metadata.get("ownerReferences"))
