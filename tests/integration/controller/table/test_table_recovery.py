"""The table when what the store holds is not what it was: wiped, restored, full, damaged.

Each test shows one row of the table of failures in docs/process-table.md.
"""

import asyncio
import base64
import contextlib
import urllib.error
from pathlib import Path

import pytest

from autellix_controller.table import read_programs
from autellix_controller.table.entry import SCHEMA_VERSION, ProgramEntry, program_id
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, encode_program
from support.etcd import Etcd, running_etcd
from support.table_contract import OWNER, check_one_winner, opened
from support.table_proxy import proxy_to
from support.tables import held, record, until, world_on


def put_raw(etcd: Etcd, key: bytes, value: bytes) -> None:
    etcd.call("/v3/kv/put", {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()})


def fill(etcd: Etcd, folder: bytes) -> None:
    """Puts until etcd refuses."""
    for number in range(50):
        put_raw(etcd, folder + b"%d" % number, b"x" * 500_000)


def make_room(etcd: Etcd, folder: bytes) -> None:
    """What an administrator does: delete, compact, defragment, disarm."""
    end = folder[:-1] + bytes([folder[-1] + 1])
    etcd.call(
        "/v3/kv/deleterange",
        {"key": base64.b64encode(folder).decode(), "range_end": base64.b64encode(end).decode()},
    )
    etcd.compact(etcd.revision())
    etcd.call("/v3/maintenance/defragment", {})
    alarms = etcd.call("/v3/maintenance/alarm", {"action": "GET"})["alarms"]
    assert isinstance(alarms, list)
    for alarm in alarms:
        etcd.call("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})


async def test_a_wiped_store_gets_everything_back_from_the_replicas(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        tables = [await world.replica("a"), await world.replica("b")]
        entries = [await opened(world, tables[0], f"session-{number}") for number in range(200)]
        for number, entry in enumerate(entries):
            await tables[0].pin(entry.id, f"engine-{number % 3}", expected=None)
            tables[1].apply(record(entry, calls=number), world.now_ms())
        ended = entries.pop()
        await tables[0].end(ended.id)
        await world.agree()
        before = {entry.id: held(tables[0], entry.id) for entry in entries}
        await asyncio.to_thread(etcd.wipe)
        await until(
            lambda: all(table.health().connected and table.health().revision < 1000 for table in tables), "it is back"
        )
        await world.agree()
        for table in tables:
            assert {entry.id: held(table, entry.id) for entry in entries} == before
            assert table.count() == len(entries)
            assert held(table, ended.id).state == "ended"
        assert {entry.id: entry for entry in await read_programs(etcd.url, world.prefix)}.keys() == {
            *before,
            ended.id,
        }
        await until(lambda: all(table.live_replicas() >= {"a", "b"} for table in tables), "both register again")
        await check_one_winner(world)


async def test_a_store_restored_from_a_backup_keeps_its_pins_and_gets_later_figures(etcd: Etcd, tmp_path: Path) -> None:
    async with world_on(etcd) as world:
        a, b = await world.replica("a"), await world.replica("b")
        old, ended, repinned = [await opened(world, a, name) for name in ("old", "ended", "repinned")]
        await a.pin(old.id, "engine-0", expected=None)
        await a.pin(repinned.id, "engine-0", expected=None)
        await world.agree()
        etcd.kill()
        etcd.save(tmp_path / "backup")
        await until(lambda: not a.health().connected and not b.health().connected, "the stop is noticed")
        await asyncio.to_thread(etcd.start)
        await until(lambda: a.health().connected and b.health().connected, "it is back")
        a.apply(record(old, calls=5), world.now_ms())
        young = await opened(world, a, "young")
        await b.end(ended.id)
        await a.pin(repinned.id, "engine-1", expected="engine-0")
        await world.agree()  # a record of a program that is not known yet is none
        for calls in range(1, 30):
            b.apply(record(young, calls=calls), world.now_ms())
            await b.flush()
        await world.agree()
        reached = a.health().revision
        await asyncio.to_thread(etcd.restore, tmp_path / "backup")
        for table in (a, b):
            await until(
                lambda table=table: table.health().connected and table.health().revision < reached,  # type: ignore[misc]
                "the rewound history is noticed",
            )
        await world.agree()
        for table in (a, b):
            assert (held(table, old.id).engine, held(table, old.id).calls) == ("engine-0", 5)
            assert held(table, young.id).calls == 29
            assert held(table, ended.id).state == "ended"
            assert held(table, repinned.id).engine == "engine-0", "the store's pin counts, older or not"


async def test_a_restored_store_is_noticed_by_a_replica_that_it_has_overtaken(etcd: Etcd, tmp_path: Path) -> None:
    async with world_on(etcd) as world, proxy_to(etcd.only.endpoint) as proxy:
        a, b = await world.replica("a"), await world.replica("b", proxy.url)
        old = await opened(world, a, "old")
        await world.agree()
        etcd.kill()
        etcd.save(tmp_path / "backup")
        await asyncio.to_thread(etcd.start)
        await until(lambda: a.health().connected and b.health().connected, "it is back")
        young = await opened(world, b, "young")
        b.apply(record(old, calls=5), world.now_ms())
        for calls in range(1, 40):
            b.apply(record(young, calls=calls), world.now_ms())
            await b.flush()
        await world.agree()
        reached = b.health().revision
        await proxy.cut()
        await until(lambda: not b.health().connected, "the cut is noticed")
        await asyncio.to_thread(etcd.restore, tmp_path / "backup")
        await until(lambda: a.health().connected, "the other one is back")
        missed, other = await opened(world, a, "missed"), await opened(world, a, "other")
        assert etcd.revision() <= reached, "this happens where the watch would not look again"
        while etcd.revision() <= reached + 10:
            a.apply(record(other, calls=etcd.revision()), world.now_ms())
            with contextlib.suppress(TableUnavailable):
                await a.flush()
        await a.pin(old.id, "engine-1", expected=None)
        await proxy.restore()
        await until(lambda: b.health().connected, "it is connected again")
        await world.agree()
        for program in (old, young, missed, other):
            assert held(a, program.id) == held(b, program.id)
        assert (held(b, old.id).engine, held(b, old.id).calls, held(b, young.id).calls) == ("engine-1", 5, 39)


async def test_a_full_store_is_said_and_written_to_again_once_it_has_room(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd", flags=["--quota-backend-bytes=4000000"]) as etcd:
        async with world_on(etcd) as world:
            table = await world.replica("a")
            known = await opened(world, table, "known")
            await table.pin(known.id, "engine-0", expected=None)
            with pytest.raises(urllib.error.HTTPError):
                fill(etcd, b"/filling/")
            fresh = await opened(world, table, "fresh")
            table.apply(record(fresh, calls=1), world.now_ms())
            await until(lambda: "space exceeded" in table.health().detail, "it says that the store is full")
            assert not table.health().connected
            with pytest.raises(TableUnavailable):
                await table.pin(known.id, "engine-1", expected="engine-0")
            with pytest.raises(TableUnavailable):
                await table.end(known.id)
            assert held(table, known.id).engine == "engine-0"
            await asyncio.to_thread(make_room, etcd, b"/filling/")
            await until(lambda: table.health().connected, "it writes again")
            await world.agree()
            assert {entry.session for entry in await read_programs(etcd.url, world.prefix)} == {"known", "fresh"}
            assert (await table.pin(known.id, "engine-1", expected="engine-0")).engine == "engine-1"
            assert await table.end(known.id)


async def test_entries_that_are_damaged_or_newer_are_counted_and_left_alone(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        layout = Layout(world.prefix)
        newer, damaged = program_id(OWNER, "newer"), program_id(OWNER, "damaged")
        entry = ProgramEntry(id=newer, owner=OWNER, session="newer", schema=SCHEMA_VERSION + 1)
        values = {newer: encode_program(entry), damaged: b"{"}
        for program, value in values.items():
            put_raw(etcd, layout.program_key(program), value)
        table = await world.replica("a")
        assert table.health().unreadable == 2
        assert table.count() == 0
        for session, program in (("newer", newer), ("damaged", damaged)):
            served = await opened(world, table, session)
            table.apply(record(served, calls=1), world.now_ms())
            assert held(table, program).calls == 1
            with pytest.raises(TableUnavailable, match="damaged or of a newer schema"):
                await table.pin(program, "engine-0", expected=None)
        await table.flush()
        for program, value in values.items():
            assert base64.b64decode(etcd.key(layout.program_key(program).decode())["value"]) == value
        assert await read_programs(etcd.url, world.prefix) == []
