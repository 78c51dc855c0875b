"""From a table's URL to the table."""

import logging
import random
import sqlite3
from collections.abc import Callable

from autellix_controller.table.access import EtcdAccess
from autellix_controller.table.channel import Members
from autellix_controller.table.database import DatabaseUnusable
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.etcd import EtcdTable, wall_clock_ms
from autellix_controller.table.interface import ProcessTable
from autellix_controller.table.memory import MemoryTable
from autellix_controller.table.sqlite import SqliteTable
from autellix_controller.table.timings import Timings
from autellix_controller.table.urls import InFile, InMemory, InvalidTable, check_prefix, parse_table_url

_log = logging.getLogger(__name__)

_DEFAULT_TIMINGS = Timings()
_NO_ACCESS = EtcdAccess()


def open_table(
    url: str,
    prefix: str,
    replica: str,
    session_timeout_seconds: float,
    *,
    timings: Timings = _DEFAULT_TIMINGS,
    access: EtcdAccess = _NO_ACCESS,
    clock_ms: Callable[[], int] = wall_clock_ms,
    expired: Callable[[ProgramEntry], None] = lambda entry: None,
    rng: random.Random | None = None,
) -> ProcessTable:
    """The table that ``url`` names, not started yet. Call it inside the event loop that will use it.

    ``prefix`` is where the cluster's keys lie (``/autellix/<namespace>/<cluster>``), ``replica`` this replica's own
    name among all replicas, ``session_timeout_seconds`` how long an idle program is kept. ``expired`` is told of
    programs that expire, of each by one of the replicas; while replicas come and go perhaps by two or none. Raises
    InvalidTable or ValueError, naming the field.
    """
    if not replica or "/" in replica:
        raise ValueError(f"replica: {replica!r} must be a name without '/', not empty")
    if session_timeout_seconds < 1:
        raise ValueError(f"session timeout: {session_timeout_seconds} must be at least 1 second")
    check_prefix(prefix)
    place = parse_table_url(url)
    rng = rng or random.Random()
    if isinstance(place, InMemory):
        return MemoryTable(
            replica=replica, session_timeout_seconds=session_timeout_seconds, clock_ms=clock_ms, expired=expired
        )
    if isinstance(place, InFile):
        try:
            return SqliteTable(
                place.path,
                replica=replica,
                session_timeout_seconds=session_timeout_seconds,
                timings=timings,
                clock_ms=clock_ms,
                rng=rng,
                expired=expired,
            )
        except (DatabaseUnusable, sqlite3.Error) as error:
            raise InvalidTable(f"table: {error}") from None
    if access.user and not place.tls:
        _log.warning("the password of etcd's user is sent without TLS; etcds:// would protect it")
    return EtcdTable(
        Members(place.endpoints, tls=place.tls, access=access),
        prefix=prefix,
        replica=replica,
        session_timeout_seconds=session_timeout_seconds,
        timings=timings,
        clock_ms=clock_ms,
        rng=rng,
        expired=expired,
    )
