"""What names a table: its URL and its prefix."""

import re
from pathlib import Path
from typing import Final

import msgspec

_ENDPOINT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?):([0-9]{1,5})")
_FORMS: Final = "allowed are memory:, sqlite:///PATH and etcd://HOST:PORT[,HOST:PORT...], with TLS etcds://..."


class InvalidTable(ValueError):
    """What names the process table, or gives access to it, cannot be used. The message names the setting and says why;
    it repeats no part that could be secret."""


class InMemory(msgspec.Struct, frozen=True):
    """``memory:``"""


class InFile(msgspec.Struct, frozen=True):
    """``sqlite:///PATH``"""

    path: Path
    """Absolute: what follows ``sqlite://``."""


class InEtcd(msgspec.Struct, frozen=True):
    """``etcd://HOST:PORT[,HOST:PORT...]``, or ``etcds://`` with TLS."""

    endpoints: tuple[str, ...]
    """``host:port`` pairs."""
    tls: bool = False


def parse_table_url(url: str) -> InMemory | InFile | InEtcd:
    """Which table a URL names. Raises InvalidTable if it names none."""
    if url == "memory:":
        return InMemory()
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("etcd", "etcds", "sqlite"):
        raise InvalidTable(f"table: not a known kind of table; {_FORMS}")
    if scheme == "sqlite":
        if not rest.startswith("/") or rest.endswith("/") or "\0" in rest:
            raise InvalidTable(f"table: sqlite:// is followed by the absolute path of a file; {_FORMS}")
        return InFile(Path(rest))
    if "@" in rest:
        raise InvalidTable(f"table: a user and password do not belong in the URL; {_FORMS}")
    endpoints = tuple(rest.removesuffix("/").split(","))
    for endpoint in endpoints:
        found = _ENDPOINT.fullmatch(endpoint)
        if found is None or not 1 <= int(found[1]) <= 65535:
            raise InvalidTable(f"table: {endpoint!r} is not HOST:PORT; {_FORMS}")
    return InEtcd(endpoints, tls=scheme == "etcds")


def check_prefix(prefix: str) -> None:
    """Raises ValueError if the prefix is not a path such as ``/autellix/NAMESPACE/CLUSTER``."""
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", prefix):
        raise ValueError(f"table prefix: {prefix!r} must look like /autellix/NAMESPACE/CLUSTER, without '/' at the end")
