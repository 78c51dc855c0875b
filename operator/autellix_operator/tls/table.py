"""The Secrets with which controllers and etcd trust one another: made once, renewed in time, made anew when deleted.

Three Secrets: the authority, whose key no pod sees; the members' certificate; the controllers'. Their contents are
random, so they are created and never applied; only labels and owner are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.process_table import ManagedEtcd
from autellix_operator.children import Children
from autellix_operator.desired.etcd import hosts
from autellix_operator.keys.contents import decoded, encoded
from autellix_operator.kube.applier import SECRET, Conflict, Object
from autellix_operator.tls.certificates import Pair, is_good, is_good_authority, issue, new_authority


@dataclass(frozen=True, slots=True)
class TableSecrets:
    """The Secrets of the table's etcd, as they are."""

    authority: Object
    server: Object
    client: Object

    @property
    def all(self) -> tuple[Object, Object, Object]:
        """All of them."""
        return self.authority, self.server, self.client


async def ensure_table_secrets(children: Children, cluster: Cluster, etcd: ManagedEtcd, now: datetime) -> TableSecrets:
    """Makes what is missing, broken or about to expire. Raises ForeignObject, Leftover or ApiError."""
    live = await children.find(SECRET, cluster.table_authority_secret)
    authority = _pair(live)
    if live is None or not is_good_authority(authority, now):
        authority = new_authority(f"{cluster.namespace}/{cluster.name}"[:64], now)
        await children.make_anew(live, _secret(cluster, cluster.table_authority_secret, authority))
    wanted = {
        cluster.table_server_secret: (cluster.child(Component.ETCD), hosts(cluster, etcd)),
        cluster.table_client_secret: (cluster.child(Component.CONTROLLER), ()),
    }
    for name, (subject, names) in wanted.items():
        live = await children.find(SECRET, name)
        trusted = decoded(live, "ca.crt") == authority.certificate
        if live is None or not trusted or not is_good(_pair(live), authority, names, now):
            pair = issue(authority, subject, names, now)
            await children.make_anew(live, _secret(cluster, name, pair, authority))
    # Holds labels and owner.
    names_of_all: Sequence[str] = (cluster.table_authority_secret, *wanted)
    held = [await children.apply(_metadata(cluster, name)) for name in names_of_all]
    for secret in held:
        if not decoded(secret, "tls.crt"):
            raise Conflict(409, "Conflict", f"Secret {secret['metadata']['name']} was removed meanwhile")
    return TableSecrets(*held)


def _secret(cluster: Cluster, name: str, pair: Pair, authority: Pair | None = None) -> dict[str, Any]:
    contents = {"tls.crt": pair.certificate, "tls.key": pair.key}
    if authority is not None:
        contents["ca.crt"] = authority.certificate
    return {**_metadata(cluster, name), "type": "kubernetes.io/tls", "data": encoded(contents)}


def _metadata(cluster: Cluster, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": cluster.metadata(Component.ETCD, name)}


def _pair(secret: Mapping[str, Any] | None) -> Pair:
    return Pair(decoded(secret, "tls.crt"), decoded(secret, "tls.key"))
