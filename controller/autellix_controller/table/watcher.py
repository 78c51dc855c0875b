"""Follows all keys under a prefix: list, then watch, and again from where it left off after any cut."""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

import grpc
import msgspec
from etcd3aio._protobuf import WatchCreateRequest, WatchRequest
from etcd3aio.kv import prefix_range_end

from autellix_controller.background import Backoff
from autellix_controller.table.channel import Member
from autellix_controller.table.store import Compacted, EtcdStore, LeaseGone, StoreAway, Swap, Value
from autellix_controller.table.timings import Timings

_log = logging.getLogger(__name__)

#: A watch on a member that lost its leader is cancelled instead of falling silent.
_METADATA: Final = (("hasleader", "true"),)
_DELETE: Final = 1


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change; ``data`` is None if the key was deleted."""

    key: bytes
    data: bytes | None
    revision: int


class Sink(Protocol):
    """Who is told. All calls are synchronous and in the order of the store's history."""

    def snapshot_begins(self) -> None:
        """A listing starts (again): forget the pages of one that was not completed."""

    def snapshot_page(self, values: Sequence[Value]) -> None:
        """Some of the keys."""

    def snapshot_complete(self, revision: int, *, same_history: bool) -> None:
        """The pages are all keys at this revision. Not the same history: the store was wiped or restored since."""

    def events(self, events: Sequence[Event], revision: int) -> None:
        """Changes, all up to this revision told."""


class _WatchEnded(Exception):
    """The stream is of no more use; the message says why."""


class Watcher:
    """Keeps a sink up to date.

    The store's history has a name of its own under ``history_key``. Before every watch the name and the revision are
    checked, and that the newest change it knows of is still what the store wrote at that revision: etcd itself accepts
    a watch from any revision, also from one that a wiped store has yet to reach or a restored one has reached in
    another way, and stays silent about the difference.
    """

    def __init__(
        self,
        store: EtcdStore,
        prefix: bytes,
        history_key: bytes,
        sink: Sink,
        timings: Timings,
        *,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._history_key = history_key
        self._sink = sink
        self._timings = timings
        self._backoff = Backoff(timings.backoff_min, timings.backoff_max, rng)
        self._history: bytes | None = None
        self._listed = False
        self._newest: Value | None = None
        """The newest value that was told."""
        self._last_reply = time.monotonic()
        self.connected = False
        self.detail = "not connected to etcd yet"
        """Why it is not connected; empty when it is."""
        self.revision = 0
        """The sink knows everything up to here."""
        self.listings = 0
        """Full listings so far: more than one means that a watch could not be resumed."""

    @property
    def seconds_since_reply(self) -> float:
        """Since the store last said anything on the watch."""
        return time.monotonic() - self._last_reply

    async def run(self) -> None:
        """Follows for ever; cancel it to stop."""
        while True:
            try:
                await self._follow()
            except (StoreAway, LeaseGone, Compacted, _WatchEnded) as error:
                self.detail = f"watch: {error}"
            if self.connected:
                self.connected = False
                self._backoff.reset()
                _log.warning("the process table is not followed any more: %s", self.detail)
            await asyncio.sleep(self._backoff.pause())

    async def _follow(self) -> None:
        revision, history = await self._store.read(self._history_key)
        named = history is not None and history.data == self._history
        same_history = named and revision >= self.revision and await self._same_past()
        if not self._listed or not same_history:
            await self._list(same_history=same_history or self._history is None)
        await self._watch(self._store.members.current)

    async def _same_past(self) -> bool:
        """Whether the store wrote what it told us. If that is compacted, nobody can tell."""
        if self._newest is None:
            return True
        try:
            _, value = await self._store.read(self._newest.key, at=self._newest.revision)
        except Compacted:
            return True
        return value == self._newest

    async def _list(self, *, same_history: bool) -> None:
        history = await self._name_history()
        self._sink.snapshot_begins()
        revision = 0
        self._newest = None
        async for listed, values in self._store.pages(self._prefix):
            revision = listed
            self._sink.snapshot_page(values)
            self._newest = max((self._newest, *values), key=lambda value: value.revision if value else 0, default=None)
        self._sink.snapshot_complete(revision, same_history=same_history)
        if not same_history:
            _log.warning("etcd lost history: it was at revision %d, now %d", self.revision, revision)
        self._history = history
        self.revision = revision
        self._listed = True
        self.listings += 1

    async def _name_history(self) -> bytes:
        while True:
            _, value = await self._store.read(self._history_key)
            if value is not None:
                return value.data
            name = secrets.token_hex(16).encode()
            await self._store.swap([Swap(self._history_key, 0, name, lease=0)])

    async def _watch(self, member: Member) -> None:
        call = member.watch.Watch(metadata=(*_METADATA, *member.metadata))
        try:
            await call.write(
                WatchRequest(
                    create_request=WatchCreateRequest(
                        key=self._prefix,
                        range_end=prefix_range_end(self._prefix),
                        # What is known already comes again, and is left out. Of a watch that starts later than the
                        # store's newest revision etcd 3.6 gives no sign of life.
                        start_revision=self.revision,
                        progress_notify=True,
                    )
                )
            )
            while True:
                self._handle(await self._reply(call))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            # The latter is what gRPC says to a write on a call that has ended in the meantime.
            self._store.members.failed(member)
            code, details = await call.code(), await call.details()
            raise _WatchEnded(f"{member.endpoint}: {code.name}: {details}") from error
        except _WatchEnded:
            self._store.members.failed(member)
            raise
        finally:
            call.cancel()

    async def _reply(self, call: Any) -> Any:
        read = asyncio.ensure_future(call.read())
        try:
            done, _ = await asyncio.wait({read}, timeout=self._timings.progress)
            if not done:
                async with asyncio.timeout(self._timings.progress):
                    await call.write(_sign_of_life())
                done, _ = await asyncio.wait({read}, timeout=self._timings.progress)
            if not done:
                raise _WatchEnded(f"silent for {self.seconds_since_reply:.0f} s")
            reply = read.result()
        except TimeoutError:
            raise _WatchEnded(f"silent for {self.seconds_since_reply:.0f} s") from None
        finally:
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)
        if reply is grpc.aio.EOF:
            raise _WatchEnded("closed by etcd")
        self._last_reply = time.monotonic()
        return reply

    def _handle(self, reply: Any) -> None:
        if reply.canceled:
            if reply.compact_revision:
                self._listed = False
                raise _WatchEnded(f"revision {self.revision} was compacted: listing anew")
            raise _WatchEnded(f"cancelled by etcd: {reply.cancel_reason or 'no reason given'}")
        if reply.created:
            # Its revision says nothing about what was delivered.
            self.connected = True
            self.detail = ""
            _log.info("following the process table from revision %d", self.revision + 1)
            return
        if reply.events:
            events = [
                Event(event.kv.key, None if event.type == _DELETE else event.kv.value, event.kv.mod_revision)
                for event in reply.events
                if event.kv.mod_revision > self.revision
            ]
            if events:
                self._reached(events, events[-1].revision)
        elif reply.watch_id >= 0:
            self._reached([], reply.header.revision)
        # Else it is the answer to our request for a sign of life. It is not tied to this watch, and servers older
        # than 3.4.25 and 3.5.8 let it overtake events: it moves nothing.

    def _reached(self, events: Sequence[Event], revision: int) -> None:
        self.revision = max(self.revision, revision)
        for event in reversed(events):
            if event.data is not None:
                self._newest = Value(event.key, event.data, event.revision)
                break
        self._sink.events(events, revision)


def _sign_of_life() -> WatchRequest:
    request = WatchRequest()
    request.progress_request.SetInParent()
    return request
