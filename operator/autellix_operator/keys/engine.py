"""The Secrets of the engine key: the key in use, which is made once and made anew when deleted, and the keys that
engines accept.

The first is for those who call engines: people, scrapers. Its content is random, so it is created and never applied.
The second follows from the first and from what it held before; it is what pods read, as a file that is replaced in
place. So a former key outlives the Secret whose deletion asks for another one, and an operator that ends half way is
followed by one that sees the same and goes on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from autellix_operator.api.names import ACCEPTED_KEYS, ENGINE_KEY, FORMER_KEYS_ANNOTATION, Cluster, Component
from autellix_operator.children import Children
from autellix_operator.keys.contents import decoded, encoded
from autellix_operator.keys.rotation import AcceptedKeys, next_keys
from autellix_operator.kube.applier import SECRET, Conflict, Object


@dataclass(frozen=True, slots=True)
class EngineKeySecrets:
    """The Secrets as they are."""

    used: Object = field(repr=False)
    accepted: Object = field(repr=False)
    until: datetime | None
    """When there is a former key to drop."""

    @property
    def all(self) -> tuple[Object, Object]:
        """All of them."""
        return self.used, self.accepted


async def ensure_engine_keys(
    children: Children, cluster: Cluster, new_secret: Callable[[], str], now: datetime
) -> EngineKeySecrets:
    """Makes what is missing or unusable, and has a changed key accepted beside the former ones for a while. Raises
    ForeignObject, Leftover or ApiError."""
    live = await children.find(SECRET, cluster.engine_key_secret)
    if live is None or not _key(live):
        await children.make_anew(live, _used(cluster, new_secret()))
    # Holds labels and owner; the key, which is not ours to apply, stays what it is.
    used = await children.apply(_manifest(cluster, cluster.engine_key_secret))
    key = _key(used)
    if not key:
        raise Conflict(409, "Conflict", f"Secret {cluster.engine_key_secret} was removed meanwhile")
    before = await children.find(SECRET, cluster.accepted_keys_secret)
    wanted = next_keys(key, _accepted_before(before), now)
    accepted = await children.apply(_accepted(cluster, wanted))
    return EngineKeySecrets(used, accepted, wanted.until)


def used_first(accepted: Mapping[str, Any]) -> list[str]:
    """The keys of the Secret of those that engines accept, first the one in use."""
    return decoded(accepted, ACCEPTED_KEYS).split()


def _used(cluster: Cluster, key: str) -> dict[str, Any]:
    return {**_manifest(cluster, cluster.engine_key_secret), "type": "Opaque", "data": encoded({ENGINE_KEY: key})}


def _accepted(cluster: Cluster, accepted: AcceptedKeys) -> dict[str, Any]:
    annotations = {FORMER_KEYS_ANNOTATION: _written(accepted.until)} if accepted.until else None
    lines = "".join(f"{key}\n" for key in accepted.keys)
    return {
        **_manifest(cluster, cluster.accepted_keys_secret, annotations),
        "type": "Opaque",
        "data": encoded({ACCEPTED_KEYS: lines}),
    }


def _manifest(cluster: Cluster, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": cluster.metadata(Component.ENGINE, name, annotations)}


def _accepted_before(secret: Object | None) -> AcceptedKeys:
    if secret is None:
        return AcceptedKeys(())
    written = secret["metadata"].get("annotations", {}).get(FORMER_KEYS_ANNOTATION, "")
    try:
        until = datetime.fromisoformat(written)
    except ValueError:
        until = None
    keys = tuple(key for key in used_first(secret) if _is_usable(key))
    return AcceptedKeys(keys, until if until is not None and until.tzinfo is not None else None)


def _written(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(secret: Mapping[str, Any]) -> str:
    """The key in use, empty if there is none that a header can carry."""
    key = decoded(secret, ENGINE_KEY)
    return key if _is_usable(key) else ""


def _is_usable(key: str) -> bool:
    return all("!" <= character <= "~" for character in key)
