"""Remembers what was applied, so that an object that is as it was left is not applied again.

Only a shortcut: an apply of the same manifest to an unchanged object writes nothing, and most of a reconcile would be
spent on finding that out. Any write by anyone gives an object another version, and then it is applied as ever. What is
remembered is lost with the process.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from autellix_operator.api.names import Key

Object = Mapping[str, Any]


class AppliedBefore:
    """By cluster and object: the version that the object had after the last apply, and a digest of the manifest."""

    def __init__(self) -> None:
        self._known: dict[Key, dict[tuple[str, str], tuple[str, bytes]]] = {}

    def is_current(self, cluster: Key, live: Object, manifest: Object) -> bool:
        """Whether ``live`` is as the last apply of this very manifest left it. What a dry run tells has no version."""
        if "resourceVersion" not in live["metadata"]:
            return False
        return self._known.get(cluster, {}).get(_address(manifest)) == (_version(live), _digest(manifest))

    def remember(self, cluster: Key, applied: Object, manifest: Object) -> None:
        """``manifest`` was applied, and the object is ``applied`` since. What a dry run tells has no version."""
        if "resourceVersion" in applied["metadata"]:
            self._known.setdefault(cluster, {})[_address(manifest)] = _version(applied), _digest(manifest)

    def forget(self, cluster: Key) -> None:
        """Drops all of a cluster that is gone."""
        self._known.pop(cluster, None)


def _address(manifest: Object) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _version(live: Object) -> str:
    return f"{live['metadata']['uid']}/{live['metadata']['resourceVersion']}"


def _digest(manifest: Object) -> bytes:
    return blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=16).digest()
