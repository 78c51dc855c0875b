"""The table while etcd is killed, silent, slow, cut off or led by another member.

Each test shows one row of the table of failures in docs/process-table.md.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from autellix_controller.table import read_programs, store
from autellix_controller.table.interface import TableUnavailable
from support.etcd import Etcd, running_etcd
from support.table_contract import check_one_winner, opened
from support.table_outage import check_traffic_goes_on
from support.table_proxy import proxy_to
from support.table_run import blind
from support.tables import BRIEF_TIMINGS, held, record, until, world_on


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
    await check_traffic_goes_on(etcd, outage)


async def test_a_silent_etcd_costs_one_of_many_programs_a_wait(etcd: Etcd) -> None:
    async with world_on(etcd, timings=BRIEF_TIMINGS) as world:
        table = await world.replica("a")
        entry = await opened(world, table)
        loop = asyncio.get_running_loop()

        async def seconds_to_open(number: int) -> float:
            began = loop.time()
            await opened(world, table, f"session-{number}")
            return loop.time() - began

        etcd.only.pause()
        try:
            table.apply(record(entry, calls=1), world.now_ms())
            with pytest.raises(TableUnavailable):
                await table.flush()  # now the outage is known
            opening = []
            for number in range(40):
                opening.append(asyncio.create_task(seconds_to_open(number)))
                await asyncio.sleep(0.025)
            waited = [seconds for seconds in await asyncio.gather(*opening) if seconds > 0.3]
            assert len(waited) <= 2, f"in a second one program tries, and perhaps the next one: {waited}"
        finally:
            etcd.only.resume()


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
    async with world_on(etcd, timeout_seconds=3.0) as world:
        table = await world.replica("a")
        busy = await opened(world, table)
        await world.agree()
        key = f"{world.prefix}/programs/{busy.id}"
        made = etcd.key(key)["create_revision"]
        table.arrived(busy.id, world.now_ms())
        await asyncio.sleep(7)  # Longer than the life of a lease, five seconds on etcd's own clock.
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
        async with world_on(etcd, timings=BRIEF_TIMINGS) as world, proxy_to(first) as proxy:
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


async def test_the_suite_finds_a_put_without_compare(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_unchanged", blind)
    async with world_on(etcd) as world:
        with pytest.raises(AssertionError, match="several replicas won"):
            await check_one_winner(world)
