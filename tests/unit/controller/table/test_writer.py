"""The writer on a store that is under the test's control."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import cast

import msgspec
import pytest

from autellix_controller.background import cancel
from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.layout import Layout, decode_program
from autellix_controller.table.leases import ExpiryLeases
from autellix_controller.table.mirror import Mirror
from autellix_controller.table.store import MAX_SWAPS, EtcdStore, StoreAway, Swap, Swapped
from autellix_controller.table.timings import Timings
from autellix_controller.table.writer import Writer
from autellix_wire.records import ProgramTotals

ENTRY = ProgramEntry(id="p", owner="o", session="s", created_ms=100)


class FakeStore:
    """Swaps always succeed, or the store is away. ``granting`` happens while a lease is being granted."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.swaps: list[list[Swap]] = []
        self.away = False
        self.pinned_meanwhile = False

    async def grant(self, ttl_seconds: int) -> int:
        if self.pinned_meanwhile:
            await asyncio.sleep(0)
            self._mirror.put("p", msgspec.structs.replace(ENTRY, engine="winner"), 6)
        return 1

    async def swap(self, swaps: Sequence[Swap]) -> tuple[int, list[Swapped]]:
        self.swaps.append(list(swaps))
        if self.away:
            raise StoreAway("away for the test")
        return 100 + len(self.swaps), [Swapped(done=True) for _ in swaps]


class Rig:
    """A mirror, a writer that runs, and its store."""

    def __init__(self) -> None:
        self.mirror = Mirror(lambda entry: True)
        self.fake = FakeStore(self.mirror)
        store = cast(EtcdStore, self.fake)
        leases = ExpiryLeases(store, session_timeout_seconds=60, clock_ms=lambda: 0)
        timings = Timings(linger=0.001, retry=0.01)
        self.writer = Writer(self.mirror, store, leases, Layout("/t"), timings, rng=random.Random(0))
        self.task = asyncio.create_task(self.writer.run())


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    await asyncio.sleep(0)
    yield rig
    await cancel(rig.task)


async def test_a_pin_that_is_learned_while_a_lease_is_granted_is_not_overwritten(rig: Rig) -> None:
    rig.mirror.put("p", ENTRY, 5)
    rig.mirror.note(msgspec.structs.replace(ENTRY, path_ms=9.0))
    rig.fake.pinned_meanwhile = True
    await rig.writer.flush()
    ((swap,),) = rig.fake.swaps
    written = decode_program("p", swap.data)
    assert written is not None
    assert (swap.expected, written.engine, written.path_ms) == (6, "winner", 9.0)


async def test_changes_of_one_program_between_two_rounds_become_one_write(rig: Rig) -> None:
    rig.mirror.put("p", ENTRY, 5)
    for path_ms in (1.0, 2.0, 3.0):
        rig.mirror.note(msgspec.structs.replace(ENTRY, path_ms=path_ms))
    await rig.writer.flush()
    assert [len(swaps) for swaps in rig.fake.swaps] == [1]


async def test_transactions_are_bounded(rig: Rig) -> None:
    for number in range(3 * MAX_SWAPS + 1):
        rig.mirror.note(msgspec.structs.replace(ENTRY, id=f"p{number}"), create=True)
    await rig.writer.flush()
    assert sorted(len(swaps) for swaps in rig.fake.swaps) == [1, MAX_SWAPS, MAX_SWAPS, MAX_SWAPS]


async def test_transactions_stay_below_what_etcd_takes(rig: Rig) -> None:
    totals = {f"engine-{number}.{'a' * 16}": ProgramTotals(service_ms=1.5) for number in range(1500)}
    for number in range(9):
        rig.mirror.note(msgspec.structs.replace(ENTRY, id=f"p{number}", totals=totals), create=True)
    await rig.writer.flush()
    sizes = [sum(len(swap.data) for swap in swaps) for swaps in rig.fake.swaps]
    assert sum(len(swaps) for swaps in rig.fake.swaps) == 9
    assert max(sizes) < 1_500_000
    assert len(sizes) > 1


async def test_an_outage_costs_a_round_one_try_and_not_one_for_each_chunk(rig: Rig) -> None:
    for number in range(50 * MAX_SWAPS):
        rig.mirror.note(msgspec.structs.replace(ENTRY, id=f"p{number}"), create=True)
    rig.fake.away = True
    with pytest.raises(TableUnavailable, match="away for the test"):
        await rig.writer.flush()
    assert len(rig.fake.swaps) <= 4, "only those under way when the first failed"
    assert rig.mirror.pending == 50 * MAX_SWAPS
    rig.fake.away = False
    await rig.writer.flush()
    assert rig.mirror.pending == 0


async def test_flushing_a_writer_that_does_not_run_fails_at_once(rig: Rig) -> None:
    await cancel(rig.task)
    with pytest.raises(TableUnavailable, match="not started, or closed"):
        await rig.writer.flush()
