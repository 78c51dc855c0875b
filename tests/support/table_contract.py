"""What every process table keeps, as one suite. A test module runs it by subclassing with a ``world`` fixture."""

import asyncio
import itertools
from typing import ClassVar

import pytest

from autellix_controller.table.entry import ProgramEntry, program_id
from autellix_controller.table.interface import ProcessTable
from support.tables import LONG_SECONDS, World, record, until

OWNER = "team"


async def opened(world: World, table: ProcessTable, session: str = "session", owner: str = OWNER) -> ProgramEntry:
    """The program of that session, opened."""
    return await table.open(program_id(owner, session), owner=owner, session=session, now_ms=world.now_ms())


async def check_one_winner(world: World) -> None:
    """Many replicas pin one program at once: all learn the same winner, and the table holds it."""
    tables = [await world.replica(f"replica-{number}") for number in range(2)]
    for attempt in range(10):
        entry = await opened(world, tables[0], f"race-{attempt}")
        await world.agree()
        pins = await asyncio.gather(
            *(tables[number % 2].pin(entry.id, f"engine-{number}", expected=None) for number in range(6))
        )
        winners = {pin.engine for pin in pins}
        assert len(winners) == 1, f"several replicas won: {winners}"
        await world.agree()
        for table in tables:
            held = table.get(entry.id)
            assert held is not None
            assert {held.engine} == winners


class TableContract:
    """The suite, but for what takes its time."""

    #: Session timeout of the worlds that it runs in.
    timeout_seconds: ClassVar[float] = LONG_SECONDS

    async def test_a_program_that_was_never_opened_is_unknown(self, world: World) -> None:
        table = await world.replica("a")
        nobody = ProgramEntry(id="never", owner=OWNER, session="never")
        table.apply(record(nobody), world.now_ms())
        table.arrived("never", world.now_ms())
        table.departed("never", world.now_ms())
        await world.agree()
        assert table.get("never") is None
        assert table.count() == 0
        assert await table.end("never") is False
        with pytest.raises(KeyError):
            await table.pin("never", "engine", expected=None)

    async def test_opening_makes_an_active_entry_that_all_replicas_see(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        assert (entry.id, entry.owner, entry.session) == (program_id(OWNER, "session"), OWNER, "session")
        assert (entry.state, entry.engine, entry.service_ms, entry.calls) == ("active", None, 0.0, 0)
        await world.agree()
        assert a.get(entry.id) == b.get(entry.id) == entry
        assert await opened(world, b) == entry
        assert a.count() == b.count() == 1

    async def test_thousands_of_first_calls_at_once_make_one_entry_and_one_pin(self, world: World) -> None:
        tables = [await world.replica("a"), await world.replica("b")]

        async def first_call(number: int) -> tuple[int, str | None]:
            table = tables[number % 2]
            entry = await opened(world, table)
            entry = await table.pin(entry.id, f"engine-{number}", expected=None)
            return entry.created_ms, entry.engine

        calls = await asyncio.gather(*(first_call(number) for number in range(2000)))
        assert len({created for created, _ in calls}) == 1
        (engine,) = {engine for _, engine in calls}
        assert engine is not None
        await world.agree()
        assert [table.count() for table in tables] == [1, 1]

    async def test_an_opening_goes_on_when_the_caller_who_began_it_is_cancelled(self, world: World) -> None:
        table = await world.replica("a")
        first = asyncio.create_task(opened(world, table))
        second = asyncio.create_task(opened(world, table))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).state == "active"

    async def test_one_replica_wins_the_pin_and_all_learn_its_engine(self, world: World) -> None:
        await check_one_winner(world)

    async def test_a_pin_moves_only_from_where_it_is(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        assert (await a.pin(entry.id, "one", expected=None)).engine == "one"
        assert (await b.pin(entry.id, "two", expected=None)).engine == "one"
        assert (await b.pin(entry.id, "two", expected="three")).engine == "one"
        assert (await b.pin(entry.id, "two", expected="one")).engine == "two"
        assert (await a.pin(entry.id, "three", expected="one")).engine == "two"
        await world.agree()
        assert {table.get(entry.id).engine for table in (a, b)} == {"two"}  # type: ignore[union-attr]

    async def test_all_replicas_count_the_programs_of_each_engine(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entries = [await opened(world, a, session) for session in ("first", "second", "third")]
        for entry, engine in zip(entries, ("one", "one", "two"), strict=True):
            await a.pin(entry.id, engine, expected=None)
        await world.agree()
        assert a.pins() == b.pins() == {"one": 2, "two": 1}
        await b.pin(entries[0].id, "two", expected="one")
        await a.end(entries[2].id)
        await world.agree()
        assert a.pins() == b.pins() == {"one": 1, "two": 1}

    async def test_figures_are_seen_at_once_and_by_other_replicas_once_written(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        a.arrived(entry.id, world.now_ms())
        a.apply(record(entry, calls=3), world.now_ms())
        a.departed(entry.id, world.now_ms())
        held = a.get(entry.id)
        assert held is not None
        assert (held.service_ms, held.calls, held.path_ms, held.wait_ms) == (300.0, 3, 300.0, 30.0)
        assert held.last_completion_ms >= held.last_arrival_ms > entry.created_ms - 1
        await a.flush()
        await world.agree()
        assert b.get(entry.id) == held

    async def test_an_arrival_alone_reaches_other_replicas_when_it_is_flushed(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        arrived_ms = entry.created_ms + 1
        a.arrived(entry.id, arrived_ms)
        await world.agree()
        assert b.get(entry.id).last_arrival_ms == arrived_ms  # type: ignore[union-attr]
        a.departed(entry.id, arrived_ms)

    async def test_records_count_once_however_they_are_repeated_and_ordered(self, world: World) -> None:
        tables = [await world.replica("a"), await world.replica("b")]
        for number, order in enumerate(itertools.permutations(range(3))):
            entry = await opened(world, tables[0], f"order-{number}")
            await world.agree()
            records = [
                record(entry, calls=1),
                record(entry, calls=2),
                record(entry, calls=4, incarnation="engine-0.b", each_ms=50.0, wait_ms=1.0),
            ]
            for position, which in enumerate((*order, *order)):
                tables[position % 2].apply(records[which], world.now_ms())
            await world.agree()
            for table in tables:
                held = table.get(entry.id)
                assert held is not None
                assert (held.service_ms, held.calls, held.path_ms, held.wait_ms) == (400.0, 6, 200.0, 20.0)

    async def test_figures_and_pin_do_not_disturb_each_other(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        await world.agree()
        expected: str | None = None
        for calls in range(1, 21):
            a.apply(record(entry, calls=calls), world.now_ms())
            pinned = await b.pin(entry.id, f"engine-{calls}", expected=expected)
            assert pinned.engine == f"engine-{calls}"
            expected = pinned.engine
        await world.agree()
        for table in (a, b):
            held = table.get(entry.id)
            assert held is not None
            assert (held.engine, held.calls, held.service_ms) == ("engine-20", 20, 2000.0)

    async def test_a_late_record_does_not_bring_an_ended_program_back(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        a.apply(record(entry, calls=1), world.now_ms())
        await world.agree()
        assert await b.end(entry.id) is True
        for table in (a, b):
            table.arrived(entry.id, world.now_ms())
            table.apply(record(entry, calls=2), world.now_ms())
            table.departed(entry.id, world.now_ms())
        await world.agree()
        for table in (a, b):
            held = table.get(entry.id)
            assert held is None or (held.state, held.service_ms, held.engine) == ("ended", 0.0, None)
            assert table.count() == 0
            with pytest.raises(KeyError):
                await table.pin(entry.id, "engine", expected=None)

    async def test_all_replicas_learn_that_the_calls_of_a_life_are_to_be_cancelled(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        assert await b.end(entry.id, cancel=True) is True
        await world.agree()
        again = await opened(world, a)
        await world.agree()
        for table in (a, b):
            held = table.get(entry.id)
            assert held is not None
            assert entry.created_ms <= held.cancelled_ms < again.created_ms == held.created_ms
        assert await a.end(entry.id) is True
        await world.agree()
        later = await opened(world, b)
        assert later.cancelled_ms == entry.created_ms, "that of this life was not asked for"

    async def test_a_program_ends_once(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        assert sorted(await asyncio.gather(a.end(entry.id), b.end(entry.id))) == [False, True]
        assert await a.end(entry.id) is False

    async def test_a_new_life_is_not_charged_with_the_former_one(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        former = await opened(world, a)
        await a.pin(former.id, "engine-0", expected=None)
        a.apply(record(former, calls=5), world.now_ms())
        await world.agree()
        await a.end(former.id)
        await world.agree()
        # Even on a replica whose clock is far behind.
        present = await b.open(former.id, owner=OWNER, session="session", now_ms=former.created_ms - 500)
        assert present.created_ms > former.created_ms
        assert present.engine_program != former.engine_program
        assert (present.engine, present.service_ms, present.path_ms) == (None, 0.0, 0.0)
        await world.agree()
        for table in (a, b):
            table.apply(record(former, calls=6), world.now_ms())
            table.apply(record(present, calls=1, each_ms=7.0), world.now_ms())
        await world.agree()
        for table in (a, b):
            held = table.get(former.id)
            assert held is not None
            assert (held.service_ms, held.calls, held.path_ms) == (7.0, 1, 7.0)

    async def test_pages_hold_the_owners_active_programs_in_order(self, world: World) -> None:
        a, b = await world.replica("a"), await world.replica("b")
        mine = [(await opened(world, a, f"mine-{number}")).id for number in range(7)]
        await opened(world, a, "theirs", owner="other")
        ended = mine.pop(3)
        await a.end(ended)
        await world.agree()
        for table in (a, b):
            seen: list[str] = []
            while page := table.page(OWNER, seen[-1] if seen else "", 2):
                assert len(page) <= 2
                seen += [entry.id for entry in page]
            assert seen == sorted(mine)
            assert [entry.session for entry in table.page("other", "", 10)] == ["theirs"]
            assert list(table.page("stranger", "", 10)) == []

    async def test_a_call_cannot_depart_that_did_not_arrive(self, world: World) -> None:
        table = await world.replica("a")
        entry = await opened(world, table)
        table.arrived(entry.id, world.now_ms())
        table.departed(entry.id, world.now_ms())
        with pytest.raises(ValueError, match="had not arrived"):
            table.departed(entry.id, world.now_ms())

    async def test_it_says_that_it_is_well_and_who_is_alive(self, world: World) -> None:
        table = await world.replica("alone")
        health = table.health()
        assert (health.loaded, health.connected, health.detail, health.unreadable) == (True, True, "", 0)
        assert "alone" in table.live_replicas()


class ExpiryContract:
    """What is forgotten, and what is not."""

    timeout_seconds: ClassVar[float] = 2.0

    async def test_an_idle_program_expires_and_one_with_a_running_call_does_not(self, world: World) -> None:
        table, other = await world.replica("a"), await world.replica("b")
        idle, busy = await opened(world, table, "idle"), await opened(world, table, "busy")
        ended = await opened(world, table, "ended")
        await table.end(ended.id)
        table.arrived(busy.id, world.now_ms())
        await self._expired(world, table, idle)
        await world.idle(self.timeout_seconds)
        assert table.get(busy.id) is not None
        table.apply(record(busy, calls=1), world.now_ms())
        table.departed(busy.id, world.now_ms())
        assert table.get(busy.id).calls == 1  # type: ignore[union-attr]
        await self._expired(world, table, busy)
        # Of each one replica says so, with what it was.
        await until(lambda: other.get(busy.id) is None and len(world.expired) == 2, "it is said that they expired")
        assert [(entry.session, entry.calls) for entry in world.expired] == [("idle", 0), ("busy", 1)]

    async def _expired(self, world: World, table: ProcessTable, entry: ProgramEntry) -> None:
        """Returns once it is forgotten, and not before its time."""
        assert table.get(entry.id) is not None
        for _ in range(60):
            await world.idle(self.timeout_seconds / 2)
            # Nothing but time passes: whoever looks, in whatever way, finds it gone.
            live = {other.id for other in table.page(OWNER, "", 10)}
            assert table.count() == len(live)
            if entry.id not in live:
                assert table.get(entry.id) is None
                return
        raise AssertionError(f"{entry.session} does not expire")


class AloneExpiryContract(ExpiryContract):
    """The suite for tables of one process, where no store drops what has expired: it is found out on looking."""

    @pytest.mark.parametrize("first_look", ["get", "page", "count", "pins", "pin", "end", "arrived", "open"])
    async def test_whatever_is_asked_first_an_expired_program_is_gone(self, world: World, first_look: str) -> None:
        table = await world.replica("a")
        former = await opened(world, table)
        await table.pin(former.id, "one", expected=None)
        await world.idle(self.timeout_seconds)
        match first_look:
            case "get":
                assert table.get(former.id) is None
            case "page":
                assert list(table.page(OWNER, "", 10)) == []
            case "count":
                assert table.count() == 0
            case "pins":
                assert table.pins() == {}
            case "pin":
                with pytest.raises(KeyError):
                    await table.pin(former.id, "two", expected="one")
            case "end":
                assert await table.end(former.id) is False
            case "arrived":
                table.arrived(former.id, world.now_ms())
                assert table.get(former.id) is None
                table.departed(former.id, world.now_ms())
            case "open":
                assert (await opened(world, table)).engine is None
        if first_look != "open":
            assert table.get(former.id) is None
        present = await opened(world, table)
        assert present.engine_program != former.engine_program
        assert (present.engine, present.calls) == (None, 0)
