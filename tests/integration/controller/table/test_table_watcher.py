"""The watcher tells everything once and in order, whatever happens to etcd or the connection."""

import asyncio
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from autellix_controller.table import Timings
from autellix_controller.table.channel import Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.store import EtcdStore, StoreAway, Value
from autellix_controller.table.watcher import Event, Watcher
from support.etcd import Etcd
from support.table_proxy import Proxy, proxy_to
from support.tables import BRIEF_TIMINGS, TIMINGS, until

PREFIX = b"/watched/"


@dataclass
class Recorder:
    """A sink that remembers."""

    events_seen: list[Event] = field(default_factory=list)
    state: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    listings: list[bool] = field(default_factory=list)
    _pages: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)

    def snapshot_begins(self) -> None:
        self._pages = {}

    def snapshot_page(self, values: Sequence[Value]) -> None:
        self._pages |= {value.key: (value.data, value.revision) for value in values}

    def snapshot_complete(self, revision: int, *, same_history: bool) -> None:
        self.state = self._pages
        self.listings.append(same_history)

    def events(self, events: Sequence[Event], revision: int) -> None:
        self.events_seen += events
        for event in events:
            assert event.revision <= revision
            if event.data is None:
                self.state.pop(event.key, None)
            else:
                self.state[event.key] = (event.data, event.revision)


def store_on(etcd_url: str, timings: Timings = TIMINGS) -> EtcdStore:
    return EtcdStore(
        Members(etcd_url.removeprefix("etcd://").split(",")),
        Contact(timings, clock=time.monotonic),
        timings,
    )


@contextlib.asynccontextmanager
async def watching(url: str, timings: Timings = TIMINGS) -> AsyncIterator[tuple[Watcher, Recorder]]:
    """A watcher that follows, with what it told."""
    store, sink = store_on(url, timings), Recorder()
    watcher = Watcher(store, PREFIX, PREFIX + b"history", sink, timings, rng=random.Random(0))
    task = asyncio.create_task(watcher.run())
    try:
        await until(lambda: watcher.connected, "the watcher connects")
        yield watcher, sink
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.members.close()


async def actual(store: EtcdStore) -> dict[bytes, tuple[bytes, int]]:
    """What etcd holds."""
    held: dict[bytes, tuple[bytes, int]] = {}
    async for _, values in store.pages(PREFIX):
        held |= {value.key: (value.data, value.revision) for value in values}
    return held


@pytest.fixture
async def writing(etcd: Etcd) -> AsyncIterator[EtcdStore]:
    """Another client of the same etcd."""
    store = store_on(etcd.url)
    yield store
    await store.members.close()


async def put_all(store: EtcdStore, key: bytes, count: int) -> int:
    """Puts values 0 to count-1 one after another, through outages; returns how many puts were acknowledged."""
    acknowledged = 0
    for value in range(count):
        while True:
            try:
                await store.put(key, str(value).encode(), 0)
            except StoreAway:
                await asyncio.sleep(0.02)
            else:
                acknowledged += 1
                break
    return acknowledged


async def test_nothing_is_missed_or_told_twice_while_etcd_is_killed_under_writers(
    etcd: Etcd, writing: EtcdStore
) -> None:
    async with watching(etcd.url) as (watcher, sink):
        writers = [asyncio.create_task(put_all(writing, PREFIX + b"%d" % number, 400)) for number in range(4)]
        for _ in range(3):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(etcd.restart)
        assert await asyncio.gather(*writers) == [400] * 4
        revision, _ = await writing.read(PREFIX)
        await until(lambda: watcher.revision >= revision, f"revision {revision} is reached")
        assert sink.listings == [True]
        assert sink.state == await actual(writing)
        revisions = [event.revision for event in sink.events_seen]
        assert revisions == sorted(set(revisions)), "an event came twice or out of order"
        for number in range(4):
            key = PREFIX + b"%d" % number
            told = {int(event.data) for event in sink.events_seen if event.key == key and event.data is not None}
            assert told == set(range(400))


async def test_compaction_behind_a_cut_watch_costs_one_listing(etcd: Etcd, writing: EtcdStore) -> None:
    async with proxy_to(etcd.only.endpoint) as proxy, watching(proxy.url) as (watcher, sink):
        await writing.put(PREFIX + b"gone", b"soon", await writing.grant(2))
        await until(lambda: PREFIX + b"gone" in sink.state, "the first write is told")
        await proxy.cut()
        await until(lambda: not watcher.connected, "the cut is noticed")
        await put_all(writing, PREFIX + b"key", 200)
        while (await writing.read(PREFIX + b"gone"))[1] is not None:  # the lease runs out on etcd's own clock
            await asyncio.sleep(0.1)
        revision, _ = await writing.read(PREFIX)
        await asyncio.to_thread(etcd.compact, revision)
        await proxy.restore()
        await until(lambda: watcher.connected and watcher.revision >= revision, "it follows again")
        assert sink.listings == [True, True]
        assert sink.state == await actual(writing)
        assert PREFIX + b"gone" not in sink.state
        await writing.put(PREFIX + b"after", b"1", 0)
        await until(lambda: PREFIX + b"after" in sink.state, "it goes on")


async def test_a_cut_watch_resumes_without_a_listing(etcd: Etcd, writing: EtcdStore) -> None:
    async with proxy_to(etcd.only.endpoint) as proxy, watching(proxy.url) as (watcher, sink):
        for cut in range(3):
            await proxy.cut()
            await put_all(writing, PREFIX + b"key", 20)
            await proxy.restore()
            revision, _ = await writing.read(PREFIX)
            await until(lambda: watcher.revision >= revision, "it catches up")  # noqa: B023
            assert len([event for event in sink.events_seen if event.key == PREFIX + b"key"]) == 20 * (cut + 1)
        assert sink.listings == [True]


async def test_what_is_known_is_not_told_again_when_a_watch_resumes(etcd: Etcd, writing: EtcdStore) -> None:
    async with proxy_to(etcd.only.endpoint) as proxy, watching(proxy.url) as (watcher, sink):
        await writing.put(PREFIX + b"key", b"1", 0)
        await until(lambda: len(sink.events_seen) == 1, "it is told")
        await proxy.cut()
        await until(lambda: not watcher.connected, "the cut is noticed")
        await proxy.restore()
        await until(lambda: watcher.connected, "it follows again")
        await writing.put(PREFIX + b"after", b"1", 0)
        await until(lambda: PREFIX + b"after" in sink.state, "it goes on")
        assert [event.key for event in sink.events_seen] == [PREFIX + b"key", PREFIX + b"after"]
        assert sink.listings == [True]


async def _silenced(proxy: Proxy, watcher: Watcher) -> None:
    proxy.hold_answers()
    await until(lambda: not watcher.connected, "the silence is noticed")


async def test_a_stream_that_fell_silent_is_noticed_and_replaced(etcd: Etcd, writing: EtcdStore) -> None:
    async with proxy_to(etcd.only.endpoint) as proxy, watching(proxy.url, BRIEF_TIMINGS) as (watcher, sink):
        await _silenced(proxy, watcher)
        await put_all(writing, PREFIX + b"key", 5)
        await proxy.restore()
        await until(lambda: PREFIX + b"key" in sink.state, "it catches up")
        assert sink.listings == [True]


@pytest.mark.parametrize("after_a_change", [False, True])
async def test_a_quiet_stream_is_not_taken_for_a_dead_one(etcd: Etcd, writing: EtcdStore, after_a_change: bool) -> None:
    timings = dataclasses.replace(TIMINGS, progress=1.5)
    async with watching(etcd.url, timings) as (watcher, sink):
        if after_a_change:
            await writing.put(PREFIX + b"key", b"1", 0)
        ends = time.monotonic() + 3 * timings.progress
        while time.monotonic() < ends:
            assert watcher.connected, watcher.detail
            await asyncio.sleep(0.005)
        assert watcher.seconds_since_reply < 2 * timings.progress
        assert sink.listings == [True]


@pytest.mark.parametrize("others_write_first", [False, True])
async def test_a_wiped_store_is_noticed(etcd: Etcd, writing: EtcdStore, others_write_first: bool) -> None:
    async with proxy_to(etcd.only.endpoint) as proxy, watching(proxy.url) as (watcher, sink):
        await put_all(writing, PREFIX + b"old", 20)
        await until(lambda: PREFIX + b"old" in sink.state, "the old history is told")
        await proxy.cut()
        await asyncio.to_thread(etcd.wipe)
        # With more writes than before, the revision alone tells nothing.
        await put_all(writing, PREFIX + b"new", 50 if others_write_first else 1)
        await proxy.restore()
        await until(lambda: sink.listings == [True, False], "the new history is listed")
        assert PREFIX + b"old" not in sink.state
        await until(lambda: watcher.connected, "it follows")
        await writing.put(PREFIX + b"after", b"1", 0)
        await until(lambda: PREFIX + b"after" in sink.state, "it goes on")
        assert sink.state == await actual(writing)


async def test_a_listing_of_many_pages_is_complete(etcd: Etcd, writing: EtcdStore) -> None:
    for start in range(0, 2500, 100):
        await asyncio.gather(*(writing.put(PREFIX + b"%05d" % (start + offset), b"x", 0) for offset in range(100)))
    async with watching(etcd.url) as (_, sink):
        assert len(sink.state) == 2501  # The name of the history is a key, too.
        assert sink.state == await actual(writing)
