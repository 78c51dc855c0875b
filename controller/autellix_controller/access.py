"""Who is calling: API keys from a mounted file, compared by hash in constant time, read again when the file changes."""

import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.followed import FollowedFile

#: Owner of sessions opened without a key.
ANONYMOUS: Final = "anonymous"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY: Final = re.compile(r"[!-~]{8,512}")


class InvalidKeys(ValueError):
    """The file of keys is unusable; the message names the line and never shows a key."""


class KeyLimits(msgspec.Struct, frozen=True):
    """What a tenant may do on one replica; None: no limit of its own."""

    calls: int | None = None
    """Calls at once; more wait."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    programs: int | None = None
    """Live sessions."""


NO_LIMITS: Final = KeyLimits()


class ApiKey(msgspec.Struct, frozen=True):
    """One key: who holds it, its SHA-256, and what its line limits.

    A tenant may hold several keys, so that they can be exchanged.
    """

    name: str
    digest: bytes
    limits: KeyLimits = NO_LIMITS


def _limits(words: Sequence[str], where: str) -> KeyLimits:
    allowed = KeyLimits.__struct_fields__
    found: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in allowed or name in found:
            # The word is not shown: it may be the rest of a key with a blank in it.
            raise InvalidKeys(
                f"{where}: after the key only {', '.join(f'{n}=N' for n in allowed)} may follow, each once"
            )
        if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
            raise InvalidKeys(f"{where}: {name} must be a number from 1 to 999999999")
        found[name] = int(value)
    return KeyLimits(**found)


def parse_keys(text: str) -> tuple[ApiKey, ...]:
    """Reads lines of ``name:key``, each with limits behind it if wanted: ``name:key calls=8 tokens_per_minute=100000``.

    Empty lines and lines that begin with ``#`` do not count. Raises InvalidKeys.
    """
    keys: list[ApiKey] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, separator, rest = line.partition(":")
        key, *words = rest.split() or [""]
        if not separator or not _NAME.fullmatch(name) or name == ANONYMOUS:
            raise InvalidKeys(
                f"line {number}: not name:key with a name of 1 to 63 letters, digits, '.', '_', '-' "
                f"(and not {ANONYMOUS!r})"
            )
        if not _KEY.fullmatch(key):
            raise InvalidKeys(f"line {number}: the key of {name} must be 8 to 512 visible ASCII characters")
        limits = _limits(words, f"line {number}")
        digest = hashlib.sha256(key.encode()).digest()
        if any(digest == other.digest for other in keys):
            raise InvalidKeys(f"line {number}: the key of {name} stands in the file twice")
        if limits != NO_LIMITS and any(name == o.name and o.limits not in (NO_LIMITS, limits) for o in keys):
            raise InvalidKeys(f"line {number}: {name} has other limits on another line")
        keys.append(ApiKey(name, digest, limits))
    if not keys:
        raise InvalidKeys("holds no key; at least one line name:key is expected")
    return tuple(keys)


class Access:
    """Turns the Authorization header of a request into the name of its owner."""

    def __init__(self, keys: Sequence[ApiKey] | None) -> None:
        """``keys`` None: nobody needs a key."""
        self.replace(keys)

    def replace(self, keys: Sequence[ApiKey] | None) -> None:
        """Other keys and limits from now on."""
        self._keys = keys
        self._tenants = len({key.name for key in keys}) if keys is not None else 1
        self._limits = {key.name: key.limits for key in keys or () if key.limits != NO_LIMITS}

    def has_one_tenant(self) -> bool:
        """There is nobody to be fair to: everybody is the same tenant."""
        return self._tenants <= 1

    def limits(self, owner: str) -> KeyLimits:
        """What the owner may do; all its keys share that."""
        return self._limits.get(owner, NO_LIMITS)

    def owner(self, authorization: bytes | None) -> str:
        """Name of the caller. Raises ApiError 401 if a key is needed and missing or wrong."""
        if self._keys is None:
            return ANONYMOUS
        scheme, _, key = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not key.strip():
            raise ApiError(ErrorCode.INVALID_API_KEY, "An API key is needed: send it as 'Authorization: Bearer KEY'.")
        digest = hashlib.sha256(key.strip()).digest()
        found = None
        for candidate in self._keys:  # all of them, so that the time says nothing about which one fits
            if hmac.compare_digest(candidate.digest, digest):
                found = candidate.name
        if found is None:
            raise ApiError(ErrorCode.INVALID_API_KEY, "The API key is not valid.")
        return found


class KeysFile:
    """Keeps an ``Access`` at what a file says."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidKeys if the file cannot be read or holds no usable keys."""
        self.access = Access(())
        self.file = FollowedFile(path, lambda text: self.access.replace(parse_keys(text)), InvalidKeys, "API keys")
