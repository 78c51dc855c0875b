"""From a table's URL to the table."""

import re
from typing import Final

from autellix_controller.table.interface import ProcessTable
from autellix_controller.table.memory import MemoryTable

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


def open_table(url: str, prefix: str, replica: str, session_timeout_seconds: float) -> ProcessTable:
    """The table that ``url`` names, not started yet.

    ``prefix`` is where the cluster's keys lie (``/autellix/<namespace>/<cluster>``), ``replica`` this replica's own
    name among all replicas, ``session_timeout_seconds`` how long an idle program is kept. Raises InvalidTableUrl or
    ValueError, naming the field.
    """
    if not replica or "/" in replica:
        raise ValueError(f"replica: {replica!r} must be a name without '/', not empty")
    if session_timeout_seconds < 1:
        raise ValueError(f"session timeout: {session_timeout_seconds} must be at least 1 second")
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", prefix):
        raise ValueError(f"table prefix: {prefix!r} must look like /autellix/NAMESPACE/CLUSTER, without '/' at the end")
    endpoints = parse_endpoints(url)
    if not endpoints:
        return MemoryTable(replica=replica, session_timeout_seconds=session_timeout_seconds)
    raise InvalidTableUrl("table: etcd is not built in yet")
