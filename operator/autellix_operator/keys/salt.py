"""The secret that goes into digests of contents: made once, and in a Secret of its own, for it must outlive the keys.

With another one all digests are others, and pods that hold contents are made anew for nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from autellix_operator.api.names import Cluster, Component
from autellix_operator.children import Children
from autellix_operator.keys.contents import decoded, encoded
from autellix_operator.kube.applier import SECRET, Conflict, Object

_KEY: Final = "salt"
#: Where it lay before: in the Secret of accepted keys. An operator that follows such a one goes on with it.
_FORMER_KEY: Final = "digest-salt"


@dataclass(frozen=True, slots=True)
class DigestSalt:
    """The secret, and the Secret in which it lies."""

    secret: Object = field(repr=False)
    value: str = field(repr=False)


async def ensure_digest_salt(children: Children, cluster: Cluster, new_secret: Callable[[], str]) -> DigestSalt:
    """Makes it if it is missing or unusable. Comes before the accepted keys are applied, which drops a former one.
    Raises ForeignObject, Leftover or ApiError."""
    manifest = _manifest(cluster)
    live = await children.find(SECRET, cluster.digest_salt_secret)
    if live is None or not decoded(live, _KEY):
        former = decoded(await children.find(SECRET, cluster.accepted_keys_secret), _FORMER_KEY)
        await children.make_anew(live, manifest | {"type": "Opaque", "data": encoded({_KEY: former or new_secret()})})
    # Holds labels and owner.
    secret = await children.apply(manifest)
    value = decoded(secret, _KEY)
    if not value:
        raise Conflict(409, "Conflict", f"Secret {cluster.digest_salt_secret} was removed meanwhile")
    return DigestSalt(secret, value)


def _manifest(cluster: Cluster) -> dict[str, Any]:
    metadata = cluster.metadata(Component.ENGINE, cluster.digest_salt_secret)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
