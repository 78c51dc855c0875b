"""The table in a file keeps the contract, and what it was told."""

import asyncio
import logging
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import ClassVar

import pytest

from autellix_controller.table import InvalidTable, open_table, read_programs
from autellix_controller.table.entry import SCHEMA_VERSION, ProgramEntry, program_id
from autellix_controller.table.interface import ProcessTable, TableUnavailable
from autellix_controller.table.layout import encode_program
from support.table_contract import OWNER, AloneExpiryContract, TableContract
from support.table_machine import run_table_machine
from support.tables import BRIEF_TIMINGS, PREFIX, WORLDS, World, record, until

NOW_MS = 1_000_000
TIMEOUT_SECONDS = 60.0


class SqliteWorlds:
    timeout_seconds: ClassVar[float]

    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        world = WORLDS["sqlite"](self.timeout_seconds, None)
        yield world
        await world.end()


class TestSqliteTable(SqliteWorlds, TableContract):
    pass


class TestSqliteExpiry(SqliteWorlds, AloneExpiryContract):
    pass


def test_it_agrees_with_the_model() -> None:
    run_table_machine(lambda: WORLDS["sqlite"](60.0, None), examples=25, idle_seconds=60.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "the table.db"


def url(path: Path) -> str:
    return f"sqlite://{path}"


@asynccontextmanager
async def running(path: Path, now_ms: int = NOW_MS) -> AsyncIterator[ProcessTable]:
    table = open_table(url(path), PREFIX, "alone", TIMEOUT_SECONDS, timings=BRIEF_TIMINGS, clock_ms=lambda: now_ms)
    await table.start()
    try:
        yield table
    finally:
        await table.close()


async def opened(table: ProcessTable, session: str, now_ms: int = NOW_MS) -> ProgramEntry:
    return await table.open(program_id(OWNER, session), owner=OWNER, session=session, now_ms=now_ms)


async def test_everything_is_there_after_a_restart(path: Path) -> None:
    async with running(path) as table:
        kept, ended = await opened(table, "kept"), await opened(table, "ended")
        await table.pin(kept.id, "engine-0", expected=None)
        table.apply(record(kept, calls=3), NOW_MS)
        await table.end(ended.id)
        before = [table.get(kept.id), table.get(ended.id)]
    async with running(path) as table:
        assert [table.get(kept.id), table.get(ended.id)] == before
        assert (table.count(), [entry.id for entry in table.page(OWNER, "", 10)]) == (1, [kept.id])
        table.apply(record(kept, calls=2), NOW_MS)
        table.apply(record(ended, calls=2), NOW_MS)
        assert [table.get(kept.id), table.get(ended.id)] == before
        again = await opened(table, "ended")
        assert again.engine_program != ended.engine_program


async def test_what_was_idle_while_nobody_ran_expires(path: Path) -> None:
    async with running(path) as table:
        old, young = await opened(table, "old"), await opened(table, "young", NOW_MS + 40_000)
    async with running(path, NOW_MS + 61_000) as table:
        assert table.get(old.id) is None
        assert table.get(young.id) == young
        await table.flush()
    assert {entry.session for entry in await read_programs(url(path), PREFIX)} == {"young"}


async def test_it_can_be_read_while_it_is_in_use_but_not_used_twice(path: Path) -> None:
    async with running(path) as table:
        entry = await opened(table, "s")
        assert await read_programs(url(path), PREFIX) == [entry]
        with pytest.raises(InvalidTable, match="is in use by another process"):
            open_table(url(path), PREFIX, "second", TIMEOUT_SECONDS)
    async with running(path) as table:
        assert table.get(entry.id) == entry
    assert await read_programs(url(path), PREFIX) == [entry]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a database, but long enough to be taken for the head of one" * 3, "file is not a database"),
        ("CREATE TABLE notes (text)", "is another program's database"),
        ("PRAGMA application_id = 0x61757478; PRAGMA user_version = 2", "was written by a newer version"),
    ],
)
async def test_a_file_that_is_no_table_is_refused_and_left_as_it_is(
    path: Path, content: bytes | str, reason: str
) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(content)
    before = path.read_bytes()
    with pytest.raises(InvalidTable, match=reason):
        open_table(url(path), PREFIX, "alone", TIMEOUT_SECONDS)
    with pytest.raises(TableUnavailable):
        await read_programs(url(path), PREFIX)
    assert path.read_bytes() == before


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTable, match=r"nowhere/table.db: No such file or directory"):
        open_table(url(tmp_path / "nowhere/table.db"), PREFIX, "alone", TIMEOUT_SECONDS)
    with pytest.raises(TableUnavailable, match=r"nowhere/table.db"):
        await read_programs(url(tmp_path / "nowhere/table.db"), PREFIX)


async def test_entries_that_are_damaged_or_newer_are_counted_and_left_alone(path: Path) -> None:
    newer, damaged = program_id(OWNER, "newer"), program_id(OWNER, "damaged")
    entry = ProgramEntry(id=newer, owner=OWNER, session="newer", schema=SCHEMA_VERSION + 1)
    values = {newer: encode_program(entry), damaged: b"{"}
    async with running(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO programs VALUES (?, ?)", values.items())
    async with running(path) as table:
        assert (table.health().unreadable, table.count()) == (2, 0)
        for session in ("newer", "damaged"):
            served = await opened(table, session)
            table.apply(record(served, calls=1), NOW_MS)
            assert (await table.pin(served.id, "engine-0", expected=None)).calls == 1
    with closing(sqlite3.connect(path)) as connection:
        assert dict(connection.execute("SELECT id, entry FROM programs")) == values


async def test_a_file_that_cannot_be_written_is_said_and_written_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(path) as table:
        entry = await opened(table, "s")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection, caplog.at_level(logging.WARNING):
            connection.execute("BEGIN IMMEDIATE")
            pinned = await table.pin(entry.id, "engine-0", expected=None)
            assert pinned.engine == "engine-0"
            table.apply(record(entry, calls=2), NOW_MS)
            with pytest.raises(TableUnavailable, match="database is locked"):
                await table.flush()
            health = table.health()
            assert (health.loaded, health.connected, health.pending_updates) == (True, False, 1)
            assert "the file cannot be written: OperationalError: database is locked" in health.detail
            assert caplog.text.count("cannot be written") == 1
            # Whoever comes now does not wait for the file.
            async with asyncio.timeout(10 * BRIEF_TIMINGS.call):
                for number in range(40):
                    await opened(table, f"another-{number}")
            connection.execute("ROLLBACK")
        await until(lambda: table.health().connected, "it is written again, with nothing else to write")
        await table.flush()
        written = {found.session: found for found in await read_programs(url(path), PREFIX)}["s"]
        assert written == table.get(entry.id)
        assert (written.engine, written.calls) == ("engine-0", 2)


async def test_closing_says_what_could_not_be_written(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = open_table(url(path), PREFIX, "alone", TIMEOUT_SECONDS, timings=BRIEF_TIMINGS, clock_ms=lambda: NOW_MS)
    await table.start()
    entry = await opened(table, "s")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, caplog.at_level(logging.WARNING):
        connection.execute("BEGIN IMMEDIATE")
        table.apply(record(entry, calls=4), NOW_MS)
        await table.close()
    assert "closing the process table with 1 programs not written" in caplog.text
