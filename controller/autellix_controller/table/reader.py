"""A look at the table from outside: for people and tools, not for replicas."""

import time

from autellix_controller.table.channel import Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, decode_program
from autellix_controller.table.store import Compacted, EtcdStore, StoreAway
from autellix_controller.table.timings import Timings
from autellix_controller.table.urls import InvalidTableUrl, check_prefix, parse_endpoints


async def read_programs(url: str, prefix: str) -> list[ProgramEntry]:
    """All readable entries as etcd holds them now, ended ones included, ordered by id. Writes nothing.

    Raises InvalidTableUrl (also for ``memory:``, which only its own process can read) or TableUnavailable.
    """
    check_prefix(prefix)
    endpoints = parse_endpoints(url)
    if not endpoints:
        raise InvalidTableUrl("table: memory: can only be read by the controller itself; give an etcd:// URL")
    timings = Timings()
    members = Members(endpoints)
    layout = Layout(prefix)
    store = EtcdStore(members, Contact(retry_seconds=timings.retry, clock=time.monotonic), timings)
    entries = []
    try:
        async for _, values in store.pages(layout.programs):
            for value in values:
                program = layout.program_of(value.key)
                entry = None if program is None else decode_program(program, value.data)
                if entry is not None:
                    entries.append(entry)
    except (StoreAway, Compacted) as error:
        raise TableUnavailable(str(error)) from error
    finally:
        await members.close()
    return entries
