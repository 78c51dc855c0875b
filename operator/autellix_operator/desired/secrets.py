"""Digests of what Secrets hold: they tell that it changed, and nothing about it."""

import hashlib
import hmac
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any


def contents_digest(salt: str, contents: Sequence[str]) -> str:
    """A short digest of what pods hold from their start on; empty if that is nothing.

    It cannot be guessed at: a password may be short, so a secret of the cluster's own goes in too.
    """
    if not contents:
        return ""
    return hmac.new(salt.encode(), "\0".join(contents).encode(), hashlib.sha256).hexdigest()[:16]


def certificate_digest(secret: Mapping[str, Any]) -> str:
    """A short digest of the certificate in a Secret, which is no secret."""
    return hashlib.sha256(b64decode(secret["data"]["tls.crt"])).hexdigest()[:16]
