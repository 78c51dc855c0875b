"""From a table's URL to the table."""

import random
from collections.abc import Callable

from autellix_controller.table.etcd import EtcdTable, wall_clock_ms
from autellix_controller.table.interface import ProcessTable
from autellix_controller.table.memory import MemoryTable
from autellix_controller.table.timings import Timings
from autellix_controller.table.urls import check_prefix, parse_endpoints

_DEFAULT_TIMINGS = Timings()


def open_table(
    url: str,
    prefix: str,
    replica: str,
    session_timeout_seconds: float,
    *,
    timings: Timings = _DEFAULT_TIMINGS,
    clock_ms: Callable[[], int] = wall_clock_ms,
    rng: random.Random | None = None,
) -> ProcessTable:
    """The table that ``url`` names, not started yet. Call it inside the event loop that will use it.

    ``prefix`` is where the cluster's keys lie (``/autellix/<namespace>/<cluster>``), ``replica`` this replica's own
    name among all replicas, ``session_timeout_seconds`` how long an idle program is kept. Raises InvalidTableUrl or
    ValueError, naming the field.
    """
    if not replica or "/" in replica:
        raise ValueError(f"replica: {replica!r} must be a name without '/', not empty")
    if session_timeout_seconds < 1:
        raise ValueError(f"session timeout: {session_timeout_seconds} must be at least 1 second")
    check_prefix(prefix)
    endpoints = parse_endpoints(url)
    if not endpoints:
        return MemoryTable(replica=replica, session_timeout_seconds=session_timeout_seconds)
    return EtcdTable(
        endpoints,
        prefix=prefix,
        replica=replica,
        session_timeout_seconds=session_timeout_seconds,
        timings=timings,
        clock_ms=clock_ms,
        rng=rng or random.Random(),
    )
