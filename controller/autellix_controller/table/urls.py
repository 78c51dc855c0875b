"""What names a table: its URL and its prefix."""

import re
from typing import Final

_ENDPOINT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?):([0-9]{1,5})")
_FORMS: Final = "allowed are memory: and etcd://HOST:PORT[,HOST:PORT...]"


class InvalidTableUrl(ValueError):
    """The URL of the process table cannot be used. The message says why; it repeats no part that could be secret."""


def parse_endpoints(url: str) -> tuple[str, ...]:
    """The ``host:port`` pairs of an ``etcd://`` URL; empty for ``memory:``.

    Raises InvalidTableUrl if it is neither.
    """
    if url == "memory:":
        return ()
    scheme, separator, rest = url.partition("://")
    if not separator or scheme != "etcd":
        raise InvalidTableUrl(f"table: not a known kind of table; {_FORMS}")
    if "@" in rest:
        raise InvalidTableUrl(f"table: a user and password do not belong in the URL; {_FORMS}")
    endpoints = tuple(rest.removesuffix("/").split(","))
    for endpoint in endpoints:
        found = _ENDPOINT.fullmatch(endpoint)
        if found is None or not 1 <= int(found[1]) <= 65535:
            raise InvalidTableUrl(f"table: {endpoint!r} is not HOST:PORT; {_FORMS}")
    return endpoints


def check_prefix(prefix: str) -> None:
    """Raises ValueError if the prefix is not a path such as ``/autellix/NAMESPACE/CLUSTER``."""
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", prefix):
        raise ValueError(f"table prefix: {prefix!r} must look like /autellix/NAMESPACE/CLUSTER, without '/' at the end")
