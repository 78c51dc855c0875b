"""The engine key: with it controllers are let in by engines, and nobody else is."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from autellix_operator.api.names import ENGINE_KEY, Cluster, Component


def engine_key_secret(cluster: Cluster, key: str) -> dict[str, Any]:
    """The Secret that holds the key. Its content is random, so it is created once and never applied again."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": cluster.metadata(Component.ENGINE, cluster.engine_key_secret),
        "type": "Opaque",
        "data": {ENGINE_KEY: b64encode(key.encode()).decode()},
    }


def engine_key_metadata(cluster: Cluster) -> dict[str, Any]:
    """The part of that Secret that is applied."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": cluster.metadata(Component.ENGINE, cluster.engine_key_secret),
    }


def has_key(secret: Mapping[str, Any], key: str) -> bool:
    """Whether a Secret holds something under a key."""
    return bool((secret.get("data") or {}).get(key))


def key_digest(secret: Mapping[str, Any]) -> str:
    """A short digest of the engine key. Tells that the key changed; says nothing about it, for the key is long and
    random."""
    return hashlib.sha256(b64decode(secret["data"][ENGINE_KEY])).hexdigest()[:16]


def contents_digest(secret: Mapping[str, Any], contents: Sequence[str]) -> str:
    """A short digest of what pods hold from their start on; empty if that is nothing.

    It cannot be guessed at: a password may be short, so the engine key goes in too.
    """
    if not contents:
        return ""
    key = b64decode(secret["data"][ENGINE_KEY])
    return hmac.new(key, "\0".join(contents).encode(), hashlib.sha256).hexdigest()[:16]


def certificate_digest(secret: Mapping[str, Any]) -> str:
    """A short digest of the certificate in a Secret, which is no secret."""
    return hashlib.sha256(b64decode(secret["data"]["tls.crt"])).hexdigest()[:16]
