"""A replica of the table in etcd while nothing is wrong: its store, its peers, its end."""

import base64
import json
import logging

import msgspec
import pytest

from autellix_controller.table import read_programs
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import TableUnavailable
from support.etcd import Etcd
from support.table_contract import opened
from support.table_proxy import proxy_to
from support.tables import BRIEF_TIMINGS, LONG_SECONDS, EtcdWorld, record, until, world_on

_EVERYTHING = base64.b64encode(b"\0").decode()


async def test_etcd_is_reached_by_its_dns_name(etcd: Etcd) -> None:
    async with world_on(etcd) as world:
        table = await world.replica("a", f"etcd://localhost:{etcd.only.client_port}")
        entry = await opened(world, table)
        assert (await table.pin(entry.id, "engine-0", expected=None)).engine == "engine-0"


async def test_replicas_are_known_until_they_leave_or_fall_silent(etcd: Etcd) -> None:
    async with world_on(etcd, timings=BRIEF_TIMINGS) as world, proxy_to(etcd.only.endpoint) as proxy:
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
