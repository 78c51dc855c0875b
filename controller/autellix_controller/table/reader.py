"""A look at the table from outside: for people and tools, not for replicas."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

from autellix_controller.table import database
from autellix_controller.table.access import EtcdAccess
from autellix_controller.table.channel import Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.database import DatabaseUnusable
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, decode_program
from autellix_controller.table.store import Compacted, EtcdStore, StoreAway
from autellix_controller.table.timings import Timings
from autellix_controller.table.urls import InFile, InMemory, InvalidTable, check_prefix, parse_table_url

_NO_ACCESS = EtcdAccess()


async def read_programs(url: str, prefix: str, access: EtcdAccess = _NO_ACCESS) -> list[ProgramEntry]:
    """All readable entries as the store holds them now, ended ones included, ordered by id. Writes nothing.

    Raises InvalidTable (also for ``memory:``, which only its own process can read) or TableUnavailable.
    """
    check_prefix(prefix)
    place = parse_table_url(url)
    if isinstance(place, InMemory):
        raise InvalidTable("table: memory: can only be read by the controller itself; give an etcd:// or sqlite:// URL")
    if isinstance(place, InFile):
        return await asyncio.to_thread(_from_file, place.path)
    return await _from_etcd(Members(place.endpoints, tls=place.tls, access=access), prefix)


def _from_file(path: Path) -> list[ProgramEntry]:
    try:
        return _decoded(database.read(path))
    except DatabaseUnusable as error:
        raise TableUnavailable(str(error)) from None


async def _from_etcd(members: Members, prefix: str) -> list[ProgramEntry]:
    timings = Timings()
    layout = Layout(prefix)
    store = EtcdStore(members, Contact(timings, clock=time.monotonic), timings)
    found: list[tuple[str, bytes]] = []
    try:
        async for _, values in store.pages(layout.programs):
            found += [(name, value.data) for value in values if (name := layout.program_of(value.key)) is not None]
    except (StoreAway, Compacted) as error:
        raise TableUnavailable(str(error)) from error
    finally:
        await members.close()
    return _decoded(found)


def _decoded(found: Iterable[tuple[str, bytes]]) -> list[ProgramEntry]:
    entries = (decode_program(program, data) for program, data in found)
    return [entry for entry in entries if entry is not None]
