"""The fleet against scripted engines over real HTTP."""

import asyncio
import errno
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from autellix_controller.background import Backoff
from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.client import EngineClient, ProbeFailed, new_session
from autellix_controller.engines.discovery import Publish
from autellix_controller.engines.engine import NO_SCHEDULING, Endpoint
from autellix_controller.engines.fleet import Fleet
from autellix_controller.engines.follower import StreamBroken, StreamUnsupported
from autellix_controller.engines.keys import EngineKeys
from autellix_controller.table.etcd import wall_clock_ms
from autellix_controller.table.memory import MemoryTable
from support.call_records import call_record
from support.fake_engine import FakeEngine, fake_engine
from support.running_controller import eventually


class Discovery:
    def __init__(self) -> None:
        self.publish: Publish

    async def run(self, publish: Publish) -> None:
        self.publish = publish
        await asyncio.Event().wait()


@asynccontextmanager
async def running_fleet(
    keys: EngineKeys | None = None, *, probe_seconds: float = 0.1
) -> AsyncIterator[tuple[Fleet, Discovery, MemoryTable]]:
    table = MemoryTable(replica="me", session_timeout_seconds=60, clock_ms=wall_clock_ms)
    discovery = Discovery()
    async with new_session() as session:
        fleet = Fleet(
            discovery,
            Accounting(table, "me"),
            lambda url: EngineClient(session, url, keys or EngineKeys()),
            probe_seconds=probe_seconds,
        )
        await fleet.start()
        await eventually(lambda: hasattr(discovery, "publish"), "discovery runs")
        try:
            yield fleet, discovery, table
        finally:
            await fleet.stop()


def at(engine: FakeEngine, *, accepts: bool = True) -> Endpoint:
    return Endpoint(engine.name, engine.url, accepts)


async def test_it_is_known_only_when_every_listed_engine_was_probed() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        assert not fleet.known
        discovery.publish([at(engine), Endpoint("dead", "http://127.0.0.1:9")])
        assert not fleet.known
        await eventually(lambda: fleet.known, "both were probed")
        assert [view.name for view in fleet.views("tiny", 0.0)] == ["engine-a"]
        assert [line.split(":")[0] for line in fleet.troubles()] == ["engine dead"]


async def test_it_is_known_where_there_is_no_engine() -> None:
    async with running_fleet() as (fleet, discovery, _):
        assert not fleet.known
        discovery.publish([])
        assert fleet.known


async def test_it_stays_known_when_an_engine_is_added() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known, "it was probed")
        discovery.publish([at(engine), Endpoint("added", "http://127.0.0.1:9")])
        assert not all(each.probed for each in fleet)
        assert fleet.known


async def test_routing_is_told_which_engines_are_about_to_be_replaced() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.views("tiny", 0.0) != (), "it is in rotation")
        assert [view.outdated for view in fleet.views("tiny", 0.0)] == [False]
        discovery.publish([Endpoint(engine.name, engine.url, outdated=True)])
        assert [view.outdated for view in fleet.views("tiny", 0.0)] == [True]


async def test_an_engine_that_drains_serves_until_its_successor_can() -> None:
    async with fake_engine("old") as old, fake_engine("new") as new, running_fleet() as (fleet, discovery, _):

        def routable() -> list[str]:
            found = [view.name for view in fleet.views("tiny", 0.0)]
            assert fleet.serves("tiny") is bool(found)
            return found

        discovery.publish([at(old)])
        await eventually(lambda: routable() == ["old"], "it serves")
        new.healthy = False
        discovery.publish([at(old, accepts=False), at(new)])
        assert routable() == ["old"], "the successor is not probed yet"
        await eventually(lambda: all(engine.probed for engine in fleet), "the successor was probed")
        assert routable() == ["old"], "the successor is not well"
        new.healthy = True
        await eventually(lambda: routable() == ["new"], "the successor serves")
        discovery.publish([at(old, accepts=False)])
        assert routable() == [], "nobody takes over: the engines are scaled to zero"


async def test_an_engine_that_drains_gets_nothing_new_but_its_last_records_count() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, table):
        await table.open("p", owner="o", session="s", now_ms=time.time_ns() // 1_000_000)
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known and engine.cursors != [], "it is followed")
        discovery.publish([at(engine, accepts=False)])
        assert fleet.views("tiny", 0.0) == ()
        await engine.publish(call_record(engine=engine.name, incarnation="one"))
        await eventually(lambda: table.get("p").calls == 1, "the record was applied")  # type: ignore[union-attr]


async def test_a_moved_engine_starts_afresh_and_a_gone_one_is_forgotten() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known, "it was probed")
        before = fleet.get("engine-a")
        discovery.publish([at(engine)])
        assert fleet.get("engine-a") is before
        discovery.publish([Endpoint("engine-a", "http://127.0.0.1:9")])
        assert fleet.get("engine-a") is not before
        discovery.publish([])
        assert list(fleet) == []


async def test_others_calls_count_as_load() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        engine.others = 7
        discovery.publish([at(engine)])
        loop = asyncio.get_running_loop()
        await eventually(lambda: [view.used for view in fleet.views("tiny", loop.time())] == [7], "the report arrived")


async def test_a_cut_record_stream_is_resumed_where_it_was() -> None:
    async with fake_engine() as engine, running_fleet() as (_, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: engine.cursors == [None], "it is followed")
        await engine.stop()
        await engine.start()
        await eventually(lambda: engine.cursors[1:] == ["one:0"], "it is followed again")


async def test_ended_programs_are_told_to_engines_that_keep_them() -> None:
    async with (
        fake_engine("a") as a,
        fake_engine("b", with_records=False) as b,
        running_fleet() as (fleet, discovery, _),
    ):
        discovery.publish([at(a), at(b), Endpoint("dead", "http://127.0.0.1:9")])
        await eventually(lambda: fleet.known, "all were probed")
        fleet.end_program("p.1/x")
        await eventually(lambda: a.ended_programs == ["p.1/x"], "it is told")
        assert b.ended_programs == []


async def test_an_engine_that_hangs_gets_a_bounded_number_of_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("autellix_controller.engines.fleet._MOST_TOLD", 3)
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known, "it was probed")
        engine.forgets.clear()
        for number in range(5):
            fleet.end_program(f"p.{number}")
        await eventually(lambda: len(engine.ended_programs) == 3, "three are told")
        assert caplog.text.count("engines are not told") == 2
        engine.forgets.set()

        async def told_again() -> None:
            while "p.9" not in engine.ended_programs:
                fleet.end_program("p.9")
                await asyncio.sleep(0.01)

        async with asyncio.timeout(5):
            await told_again()


async def test_an_engine_that_dies_is_missed_before_it_is_probed_though_nobody_calls_it() -> None:
    async with fake_engine() as engine, running_fleet(probe_seconds=600) as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known and engine.cursors != [], "it is followed")
        await engine.stop()
        await eventually(lambda: fleet.views("tiny", 0.0) == (), "it is out of rotation")


async def test_a_wrong_engine_key_is_named_as_the_trouble() -> None:
    async with (
        fake_engine(key="right") as engine,
        running_fleet(EngineKeys(["wrong", "wrong-too"])) as (fleet, discovery, _),
    ):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known, "it was probed")
        assert fleet.troubles() == ["engine engine-a: it refuses the engine key: /v1/models answered 401"]


async def test_the_client_says_what_is_wrong_with_an_engine() -> None:
    async with fake_engine(with_records=False) as engine, new_session() as session:
        client = EngineClient(session, engine.url, EngineKeys())
        assert await client.scheduling() == NO_SCHEDULING
        with pytest.raises(StreamUnsupported):
            await anext(client.lines(None))
        engine.healthy = False
        with pytest.raises(ProbeFailed, match="/health answered 503"):
            await client.models()
        await engine.stop()
        with pytest.raises(ProbeFailed, match="not reachable"):
            await client.models()
        with pytest.raises(StreamBroken):
            await anext(client.lines("one:3"))
        assert not await client.end_program("p")


async def test_a_list_of_models_that_comes_in_pieces_is_read_to_its_end() -> None:
    async def models(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        for piece in (b'{"data": [{"id": "a"}, ', b'{"id": "b"}]}'):
            await response.write(piece)
            await asyncio.sleep(0.05)
        return response

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with new_session() as session:
            client = EngineClient(session, f"http://127.0.0.1:{runner.addresses[0][1]}", EngineKeys())
            assert [entry["id"] for entry in await client.models()] == ["a", "b"]
    finally:
        await runner.cleanup()


async def test_an_engine_that_fails_to_say_whether_it_keeps_records_stays_what_it_was() -> None:
    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known, "it was probed")
        known = fleet.get("engine-a")
        assert known is not None
        engine.state_status, asked = 503, engine.asked_for_state
        await eventually(lambda: engine.asked_for_state > asked + 1, "it was asked twice more")
        assert known.has_records
        assert fleet.troubles() == []
        engine.state_status = 404
        await eventually(lambda: not known.has_records, "it is another engine now")


async def test_a_machine_that_ran_out_of_files_holds_nothing_against_an_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def exhausted(
        connector: aiohttp.TCPConnector, request: aiohttp.ClientRequest, *rest: object, **options: object
    ) -> None:
        raise aiohttp.ClientConnectorError(request.connection_key, OSError(errno.EMFILE, "Too many open files"))

    async with fake_engine() as engine, running_fleet() as (fleet, discovery, _):
        discovery.publish([at(engine)])
        await eventually(lambda: fleet.known and not fleet.troubles(), "it is in rotation")
        monkeypatch.setattr(aiohttp.TCPConnector, "connect", exhausted)
        await eventually(lambda: "engine not probed" in caplog.text, "no probe can be made")
        assert fleet.troubles() == []
        assert fleet.serves(engine.model)


def test_pauses_grow_and_start_again_after_success() -> None:
    backoff = Backoff(1.0, 4.0)
    pauses = [backoff.pause() for _ in range(5)]
    for pause, mean in zip(pauses, (1, 2, 4, 4, 4), strict=True):
        assert 0.5 * mean <= pause <= 1.5 * mean
    backoff.reset()
    assert backoff.pause() <= 1.5
