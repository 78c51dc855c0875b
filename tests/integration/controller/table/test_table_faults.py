"""The table while etcd is killed, silent, cut off, wiped, restored, full or led by another member.

Each test shows one row of the table of failures in docs/process-table.md.
"""

import asyncio
import base64
import contextlib
import json
import logging
import urllib.error
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from etcd3aio._protobuf import Compare

from autellix_controller.table import read_programs, store
from autellix_controller.table.entry import SCHEMA_VERSION, ProgramEntry, program_id
from autellix_controller.table.interface import ProcessTable, TableUnavailable
from autellix_controller.table.layout import Layout, encode_program
from support.etcd import Etcd, running_etcd
from support.table_contract import OWNER, check_one_winner, opened
from support.table_proxy import proxy_to
from support.tables import EtcdWorld, record, until

#: Long enough that nothing expires in these tests unless a test says so.
LONG_SECONDS = 600.0
_EVERYTHING = base64.b64encode(b"\0").decode()


@contextlib.asynccontextmanager
async def world_on(etcd: Etcd, timeout_seconds: float = LONG_SECONDS) -> AsyncIterator[EtcdWorld]:
    world = EtcdWorld(etcd, timeout_seconds)
    try:
        yield world
    finally:
        await world.end()


def held(table: ProcessTable, program: str) -> ProgramEntry:
    entry = table.get(program)
    assert entry is not None, f"program {program} is not known"
    return entry


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


async def test_no_accounting_is_lost_while_etcd_is_killed_under_writers(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        tables = [await world.replica("a"), await world.replica("b")]
        entries = [await opened(world, tables[0], f"session-{number}") for number in range(100)]
        await world.agree()
        calls = 0

        async def complete() -> None:
            nonlocal calls
            while True:
                calls += 1
                for number, entry in enumerate(entries):
                    table = tables[(calls + number) % 2]
                    table.arrived(entry.id, world.now_ms())
                    table.apply(record(entry, calls=calls), world.now_ms())
                    table.departed(entry.id, world.now_ms())
                await asyncio.sleep(0.02)

        completing = asyncio.create_task(complete())
        for _ in range(3):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(etcd.restart)
        completing.cancel()
        await until(lambda: all(table.health().connected for table in tables), "etcd is back")
        await world.agree()
        assert calls > 30
        for entry in await read_programs(etcd.url, world.prefix):
            assert entry.calls == calls
            assert entry == held(tables[0], entry.id) == held(tables[1], entry.id)


@pytest.mark.parametrize("outage", ["killed", "silent"])
async def test_traffic_goes_on_while_etcd_is_away(etcd: Etcd, outage: str) -> None:
    async with world_on(etcd) as world:
        a, b = await world.replica("a"), await world.replica("b")
        known, doomed = await opened(world, a, "known"), await opened(world, a, "doomed")
        await a.pin(known.id, "engine-0", expected=None)
        await world.agree()
        if outage == "killed":
            etcd.kill()
        else:
            etcd.only.pause()
        await until(lambda: not a.health().connected and not b.health().connected, "the outage is noticed")
        # Reads, accounting and openings need no etcd.
        assert held(a, known.id).engine == "engine-0"
        a.apply(record(known, calls=2), world.now_ms())
        assert held(a, known.id).calls == 2
        fresh = await opened(world, a, "fresh")
        a.apply(record(fresh, calls=1), world.now_ms())
        assert (held(a, fresh.id).state, held(a, fresh.id).calls) == ("active", 1)
        assert [entry.session for entry in a.page(OWNER, "", 10)] == [
            entry.session for entry in sorted((known, doomed, fresh), key=lambda entry: entry.id)
        ]
        # What only etcd can decide is refused, and what is wrong is said.
        with pytest.raises(TableUnavailable, match=r"writes to etcd fail for|no answer|UNAVAILABLE"):
            await a.pin(known.id, "engine-1", expected="engine-0")
        with pytest.raises(TableUnavailable):
            await a.end(doomed.id)
        with pytest.raises(TableUnavailable):
            await a.flush()
        assert a.health().loaded
        assert a.health().detail
        # After a first try that failed, an outage costs a caller no time.
        started = asyncio.get_running_loop().time()
        await opened(world, a, "another")
        with pytest.raises(TableUnavailable):
            await a.pin(known.id, "engine-1", expected="engine-0")
        assert asyncio.get_running_loop().time() - started < 2.5
        if outage == "killed":
            await asyncio.to_thread(etcd.start)
        else:
            etcd.only.resume()
        await until(lambda: all(table.health().connected for table in (a, b)), "both are connected again")
        await until(lambda: held(b, known.id).calls == 2 and b.get(fresh.id), "what waited is written unasked")
        await world.agree()
        assert held(b, known.id) == held(a, known.id)
        # A process that only slept may find the refused move and the refused end in its socket when it wakes.
        assert held(b, known.id).engine in {"engine-0"} | ({"engine-1"} if outage == "silent" else set())
        assert held(b, doomed.id).state == held(a, doomed.id).state
        assert held(b, doomed.id).state in {"active"} | ({"ended"} if outage == "silent" else set())
        assert held(b, fresh.id) == held(a, fresh.id)
        assert held(b, fresh.id).calls == 1
        assert a.count() == b.count() == 3 + (held(a, doomed.id).state == "active")
        assert a.health().detail == ""


async def test_a_slow_etcd_delays_pins_and_openings_and_nothing_else(etcd: Etcd) -> None:
    async with world_on(etcd) as world, proxy_to(etcd.only.endpoint) as proxy:
        a, b = await world.replica("a"), await world.replica("b", proxy.url)
        entry = await opened(world, b)
        await world.agree()
        proxy.delay_seconds = 0.15
        # Accounting and reads have nothing to await.
        for calls in range(1, 200):
            b.arrived(entry.id, world.now_ms())
            b.apply(record(entry, calls=calls), world.now_ms())
            b.departed(entry.id, world.now_ms())
            assert held(b, entry.id).calls == calls
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await b.pin(entry.id, "engine-0", expected=None)).engine == "engine-0"
        assert loop.time() - began > 0.1
        await b.flush()
        assert (b.health().connected, b.health().detail) == (True, "")
        await world.agree()
        assert held(a, entry.id) == held(b, entry.id)


async def test_one_program_opened_by_two_replicas_during_an_outage_is_one_afterwards(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        a, b = await world.replica("a"), await world.replica("b")
        etcd.kill()
        await until(lambda: not a.health().connected and not b.health().connected, "the outage is noticed")
        mine = await opened(world, a)
        await asyncio.sleep(0.01)
        theirs = await opened(world, b)
        assert mine.created_ms < theirs.created_ms
        a.apply(record(mine, calls=2, incarnation="engine-0.a"), world.now_ms())
        b.apply(record(theirs, calls=3, incarnation="engine-1.a"), world.now_ms())
        await asyncio.to_thread(etcd.start)
        await until(lambda: all(table.health().connected for table in (a, b)), "both are connected again")
        await world.agree()
        assert held(a, mine.id) == held(b, mine.id)
        assert held(a, mine.id).created_ms == mine.created_ms
        assert held(a, mine.id).calls == 5
        # Calls that still run under the later opening's name are charged, too.
        b.apply(record(theirs, calls=4, incarnation="engine-1.a"), world.now_ms())
        winners = await asyncio.gather(
            a.pin(mine.id, "engine-0", expected=None), b.pin(mine.id, "engine-1", expected=None)
        )
        assert winners[0].engine == winners[1].engine
        await world.agree()
        assert held(a, mine.id) == held(b, mine.id)
        assert held(a, mine.id).calls == 6


async def test_a_replica_that_was_cut_off_does_not_revive_what_ended_meanwhile(etcd: Etcd) -> None:
    async with world_on(etcd) as world, proxy_to(etcd.only.endpoint) as proxy:
        a, b = await world.replica("a"), await world.replica("b", proxy.url)
        ended, reopened = await opened(world, a, "ended"), await opened(world, a, "reopened")
        await world.agree()
        await proxy.cut()
        await until(lambda: not b.health().connected, "the cut is noticed")
        for entry in (ended, reopened):
            assert await a.end(entry.id)
            b.arrived(entry.id, world.now_ms())
            b.apply(record(entry, calls=9), world.now_ms())
        present = await opened(world, a, "reopened")
        a.apply(record(present, calls=1), world.now_ms())
        await a.flush()
        await proxy.restore()
        await until(lambda: b.health().connected, "it is connected again")
        await world.agree()
        for table in (a, b):
            assert held(table, ended.id).state == "ended"
            assert held(table, present.id).engine_program == present.engine_program
            assert held(table, present.id).calls == 1


async def test_a_running_call_of_a_replica_that_was_cut_off_keeps_its_program(etcd: Etcd) -> None:
    async with world_on(etcd, timeout_seconds=1.0) as world, proxy_to(etcd.only.endpoint) as proxy:
        a, b = await world.replica("a"), await world.replica("b", proxy.url)
        busy, idle = await opened(world, a, "busy"), await opened(world, a, "idle")
        await a.pin(busy.id, "engine-0", expected=None)
        await world.agree()
        b.arrived(busy.id, world.now_ms())
        await proxy.cut()
        await until(lambda: a.get(busy.id) is None and a.get(idle.id) is None, "the store forgets both")
        b.apply(record(busy, calls=1), world.now_ms())
        await proxy.restore()
        await until(lambda: b.health().connected, "it is connected again")
        await world.agree()
        assert held(a, busy.id) == held(b, busy.id)
        assert (held(a, busy.id).engine, held(a, busy.id).calls) == ("engine-0", 1)
        assert a.get(idle.id) is None
        assert b.get(idle.id) is None
        b.departed(busy.id, world.now_ms())


async def test_a_running_call_keeps_its_entry_in_the_store_all_the_time(etcd: Etcd) -> None:
    async with world_on(etcd, timeout_seconds=1.0) as world:
        table = await world.replica("a")
        busy = await opened(world, table)
        await world.agree()
        key = f"{world.prefix}/programs/{busy.id}"
        made = etcd.key(key)["create_revision"]
        table.arrived(busy.id, world.now_ms())
        await asyncio.sleep(6)  # Twice the life of a lease, on etcd's own clock.
        table.departed(busy.id, world.now_ms())
        assert etcd.key(key)["create_revision"] == made, "the entry expired and was made again"


async def test_a_pin_whose_answer_was_lost_is_moved_once_and_its_mover_knows(etcd: Etcd) -> None:
    async with world_on(etcd) as world, proxy_to(etcd.only.endpoint) as proxy:
        a, b = await world.replica("a"), await world.replica("b", proxy.url)
        entry = await opened(world, b)
        await world.agree()
        proxy.hold_answers()
        moving = asyncio.create_task(b.pin(entry.id, "engine-0", expected=None))
        await until(lambda: held(a, entry.id).engine == "engine-0", "the swap reaches etcd")
        written = etcd.newest_revision(f"{world.prefix}/programs/")
        await proxy.cut()
        await proxy.restore()
        try:
            assert (await moving).engine == "engine-0"
        except TableUnavailable:
            await until(lambda: b.health().connected, "it is connected again")
            assert (await b.pin(entry.id, "engine-1", expected=None)).engine == "engine-0"
        assert etcd.newest_revision(f"{world.prefix}/programs/") == written


async def test_with_several_members_a_lost_answer_is_made_good_at_once(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd", members=3) as etcd:
        first, *others = [member.endpoint for member in etcd.members]
        async with world_on(etcd) as world, proxy_to(first) as proxy:
            table = await world.replica("a", ",".join([proxy.url, *others]))
            entry = await opened(world, table)
            proxy.hold_answers()
            assert (await table.pin(entry.id, "engine-0", expected=None)).engine == "engine-0"
            await until(lambda: table.health().connected, "it follows another member")


async def test_a_refused_move_alone_does_not_leave_the_table_unwell(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        table = await world.replica("a")
        entry = await opened(world, table)
        etcd.kill()
        with pytest.raises(TableUnavailable):
            await table.pin(entry.id, "engine-0", expected=None)
        await asyncio.to_thread(etcd.start)
        await until(lambda: table.health().connected, "it is well again, with nothing else to write")
        assert (await table.pin(entry.id, "engine-1", expected=None)).engine == "engine-1"


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
            assert held(table, known.id).engine == "engine-0"
            await asyncio.to_thread(make_room, etcd, b"/filling/")
            await until(lambda: table.health().connected, "it writes again")
            await world.agree()
            assert {entry.session for entry in await read_programs(etcd.url, world.prefix)} == {"known", "fresh"}


async def test_three_members_lose_their_leader_and_nothing_else(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd", members=3) as etcd:
        async with world_on(etcd) as world:
            tables = [await world.replica("a"), await world.replica("b")]
            entry = await opened(world, tables[0])
            await world.agree()
            calls = 0
            pinned: str | None = None
            for victim in etcd.members:
                victim.kill()
                for _ in range(20):
                    calls += 1
                    for table in tables:
                        table.apply(record(entry, calls=calls), world.now_ms())
                    with contextlib.suppress(TableUnavailable):
                        pinned = (await tables[calls % 2].pin(entry.id, f"engine-{calls}", expected=pinned)).engine
                    await asyncio.sleep(0.05)
                victim.start()
                await asyncio.to_thread(etcd.start)
            await until(lambda: all(table.health().connected for table in tables), "both are connected")
            await world.agree()
            assert held(tables[0], entry.id) == held(tables[1], entry.id)
            assert held(tables[0], entry.id).calls == calls
            assert held(tables[0], entry.id).engine == pinned


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


async def test_a_replica_starts_without_etcd_and_loads_when_it_comes(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        first = await world.replica("first")
        entry = await opened(world, first)
        await first.flush()
        etcd.kill()
        late = world.unstarted("late")
        await late.start()
        fresh = await opened(world, late, "fresh")
        assert not late.health().loaded
        assert "watch" in late.health().detail
        await asyncio.to_thread(etcd.start)
        await until(lambda: late.health().loaded and late.health().connected, "it loads the table")
        await world.agree()
        assert held(late, entry.id) == held(first, entry.id)
        assert held(first, fresh.id) == held(late, fresh.id)


async def test_etcd_is_reached_by_its_dns_name(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        table = await world.replica("a", f"etcd://localhost:{etcd.only.client_port}")
        entry = await opened(world, table)
        assert (await table.pin(entry.id, "engine-0", expected=None)).engine == "engine-0"


async def test_replicas_are_known_until_they_leave_or_fall_silent(etcd: Etcd) -> None:
    async with world_on(etcd) as world, proxy_to(etcd.only.endpoint) as proxy:
        a = await world.replica("a")
        leaving, silent = await world.replica("leaving"), await world.replica("silent", proxy.url)
        await until(lambda: a.live_replicas() == {"a", "leaving", "silent"}, "all are registered")
        await leaving.close()
        world.replicas.remove(leaving)
        await until(lambda: a.live_replicas() == {"a", "silent"}, "one has left")
        await proxy.cut()
        await until(lambda: a.live_replicas() == {"a"}, "one fell silent")
        await proxy.restore()
        await until(lambda: silent.live_replicas() == {"a", "silent"}, "it is back")


async def test_closing_writes_what_is_pending_and_says_what_it_could_not_write(
    etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    world = EtcdWorld(etcd, LONG_SECONDS)
    table = await world.replica("a")
    entry = await opened(world, table)
    table.apply(record(entry, calls=3), world.now_ms())
    await table.close()
    (written,) = await read_programs(etcd.url, world.prefix)
    assert written.calls == 3
    table = await world.replica("a")
    etcd.kill()
    table.apply(record(entry, calls=4), world.now_ms())
    with caplog.at_level(logging.WARNING):
        await table.close()
    assert "1 programs not written" in caplog.text


async def test_reading_programs_says_when_etcd_is_away(etcd: Etcd) -> None:
    etcd.kill()
    with pytest.raises(TableUnavailable, match=etcd.only.endpoint):
        await read_programs(etcd.url, "/autellix/n/c")


async def test_the_suite_finds_a_put_without_compare(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a blind put where a compare-and-swap belongs."""

    def blind(swap: store.Swap) -> Compare:
        return Compare(result=Compare.GREATER, target=Compare.VERSION, key=swap.key, version=-1)

    monkeypatch.setattr(store, "_unchanged", blind)
    async with world_on(etcd) as world:
        with pytest.raises(AssertionError, match="several replicas won"):
            await check_one_winner(world)


async def test_every_key_and_value_is_as_documented(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        table = await world.replica("a")
        entry = await opened(world, table)
        await table.flush()
        found = etcd.call("/v3/kv/range", {"key": _EVERYTHING, "range_end": _EVERYTHING})
        kvs = found["kvs"]
        assert isinstance(kvs, list)
        values = {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv["value"]) for kv in kvs}
        program, replica = f"{world.prefix}/programs/{entry.id}", f"{world.prefix}/replicas/a"
        assert sorted(values) == [f"{world.prefix}/history", program, replica]
        leased = {base64.b64decode(kv["key"]).decode() for kv in kvs if int(kv.get("lease", 0))}
        assert leased == {program, replica}
        assert list(json.loads(values[program])) == [field.name for field in msgspec.structs.fields(ProgramEntry)]
        assert json.loads(values[replica]) == {"schema": 1, "name": "a"}
