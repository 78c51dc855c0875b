"""Texts in the data of Secrets."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Any


def encoded(contents: Mapping[str, str]) -> dict[str, str]:
    """The field ``data`` of a Secret that holds these texts."""
    return {name: b64encode(value.encode()).decode() for name, value in contents.items()}


def decoded(secret: Mapping[str, Any] | None, name: str) -> str:
    """A text of a Secret; empty if there is no such Secret, no such key, or no text in it."""
    try:
        return b64decode(((secret or {}).get("data") or {}).get(name, "")).decode()
    except (NotBase64, UnicodeDecodeError):
        return ""
