"""An outage of etcd under two replicas."""

import asyncio

import pytest

from autellix_controller.table.interface import TableUnavailable
from support.etcd import Etcd
from support.table_contract import OWNER, opened
from support.tables import BRIEF_TIMINGS, held, record, until, world_on

_CALLERS = 20


async def check_traffic_goes_on(etcd: Etcd, outage: str, seconds: float = 0.0) -> None:
    """etcd is ``killed`` or ``silent`` for at least so many seconds: calls go on, and afterwards the replicas agree."""
    async with world_on(etcd, timings=BRIEF_TIMINGS) as world:
        a, b = await world.replica("a"), await world.replica("b")
        known, doomed = await opened(world, a, "known"), await opened(world, a, "doomed")
        await a.pin(known.id, "engine-0", expected=None)
        await world.agree()
        if outage == "killed":
            etcd.kill()
        else:
            etcd.only.pause()
        await until(lambda: not a.health().connected and not b.health().connected, "the outage is noticed")
        back_at = asyncio.get_running_loop().time() + seconds
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
        # After a try that failed, an outage costs callers no time.
        started = asyncio.get_running_loop().time()
        for number in range(_CALLERS):
            await opened(world, a, f"another-{number}")
            with pytest.raises(TableUnavailable):
                await a.pin(known.id, "engine-1", expected="engine-0")
        assert asyncio.get_running_loop().time() - started < _CALLERS * BRIEF_TIMINGS.call / 2
        calls = 2
        while asyncio.get_running_loop().time() < back_at:
            await asyncio.sleep(0.05)
            calls += 1
            a.apply(record(known, calls=calls), world.now_ms())
            assert held(a, known.id).calls == calls
        if outage == "killed":
            await asyncio.to_thread(etcd.start)
        else:
            etcd.only.resume()
        await until(lambda: all(table.health().connected for table in (a, b)), "both are connected again")
        await until(lambda: held(b, known.id).calls == calls and b.get(fresh.id), "what waited is written unasked")
        await world.agree()
        assert held(b, known.id) == held(a, known.id)
        # A process that only slept may find the refused move and the refused end in its socket when it wakes.
        assert held(b, known.id).engine in {"engine-0"} | ({"engine-1"} if outage == "silent" else set())
        assert held(b, doomed.id).state == held(a, doomed.id).state
        assert held(b, doomed.id).state in {"active"} | ({"ended"} if outage == "silent" else set())
        assert held(b, fresh.id) == held(a, fresh.id)
        assert held(b, fresh.id).calls == 1
        assert a.count() == b.count() == 2 + _CALLERS + (held(a, doomed.id).state == "active")
        assert a.health().detail == ""
