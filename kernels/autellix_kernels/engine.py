"""The swap engine: moves blocks between GPU cache and host pool so that gather, bus and scatter overlap.

Each direction has a lane of two streams. On the cache stream run the kernels, on the bus stream the copies; staging
slabs go round between them::

    store   cache stream   gather 0 | gather 1 | gather 2 | (slab 0 free?) gather 3 ...
            bus stream               copy 0    | copy 1   | copy 2   | ...
    load    bus stream     copy 0   | copy 1   | copy 2   | (slab 0 free?) copy 3 ...
            cache stream              scatter 0 | scatter 1 | ...

Ordering, enforced here and nowhere else:

1. Cache blocks are touched only after what is on the caller's `after` stream at submission.
2. A slab is filled again only after it was emptied (its `emptied` event), emptied only after it was filled (`filled`).
3. All writes to the host pool are on the store lane's bus stream, all writes to cache blocks on the load lane's cache
   stream: of two transfers of one direction the later one wins.
4. A transfer waits for those of the other direction in flight that share a block or a slot with it (`HazardLedger`).
5. A batched copy bypasses staging. It waits for both streams of its lane; a gather after a batched store waits for it,
   so that stores are done with their blocks in the order of submission, on which rule 4 relies.

What remains for the caller: the model may overwrite a stored block, or read a loaded one, only after
`hold(stream, transfer)`, or after the transfer was reported by `finished`; a slot belongs to whoever manages the pool.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from autellix_kernels.device import Device, Event, Stream
from autellix_kernels.errors import DriverError, LayoutError, SwapError
from autellix_kernels.hazards import HazardLedger
from autellix_kernels.lanes import Flight, Lane, StagingSlab
from autellix_kernels.layout import BlockLayout, IdArray, checked_ids
from autellix_kernels.mover import Mover
from autellix_kernels.plan import Direction, Path, choose_path, chunks
from autellix_kernels.pool import HostPool, Run
from autellix_kernels.settings import SwapSettings
from autellix_kernels.transfers import Finished, SwapStats, Transfer

Ids = Sequence[int] | npt.NDArray[np.integer]


class SwapEngine:
    """See the module's text.

    Not for several threads at once; all calls come from the thread of the device's context.
    """

    def __init__(
        self, device: Device, layout: BlockLayout, pool: HostPool, mover: Mover, settings: SwapSettings
    ) -> None:
        """Allocates staging, streams and events.

        Args:
            pool: its slots must have `layout.block_bytes`.

        Raises:
            LayoutError: they do not.
            DriverError: no memory for staging.
        """
        if pool.slot_bytes != layout.block_bytes:
            raise LayoutError(
                f"slots of {pool.slot_bytes} bytes do not fit staged blocks of {layout.block_bytes} bytes"
            )
        self._device = device
        self._layout = layout
        self._pool = pool
        self._mover = mover
        self._settings = settings
        self._blocks_per_slab = min(max(settings.staging_bytes // layout.block_bytes, 1), mover.max_blocks)
        self._ledger = HazardLedger(layout.blocks, pool.slots)
        self._spare_events: list[Event] = []
        self._number = 0
        self._broken: DriverError | None = None
        self._size = dict.fromkeys(Direction, 0)
        self._seconds = dict.fromkeys(Direction, 0.0)
        self._transfers = {(direction, path): 0 for direction in Direction for path in Path}
        self._lanes = {direction: self._make_lane() for direction in Direction}

    def store(self, blocks: Ids, slots: Ids, *, after: Stream) -> Transfer:
        """Copies cache block `blocks[i]` into host slot `slots[i]`, asynchronously.

        Args:
            after: the stream that writes the cache; what is on it now happens before.

        Raises:
            LayoutError: unequal lengths, an id out of range or twice. Nothing was submitted.
            DriverError: the driver refused; the engine is unusable from now on.
        """
        return self._submit(Direction.STORE, blocks, slots, after)

    def load(self, slots: Ids, blocks: Ids, *, after: Stream) -> Transfer:
        """Copies host slot `slots[i]` into cache block `blocks[i]`, asynchronously.

        Args:
            after: the stream that used the cache blocks before; what is on it now happens before they are overwritten.

        Raises:
            LayoutError, DriverError: as `store`.
        """
        return self._submit(Direction.LOAD, blocks, slots, after)

    def hold(self, stream: Stream, transfer: Transfer) -> None:
        """What is put on `stream` from now on starts after the cache side of `transfer`: a stored block may then be
        overwritten, a loaded one read.

        Blocks nobody. A stored block is free as soon as it was gathered, before its bytes have crossed the bus.
        """
        for flight in self._lanes[transfer.direction].flights:
            if flight.transfer.number == transfer.number:
                self._device.wait(stream, flight.cache_done)

    def finished(self) -> list[Finished]:
        """Transfers that ended since the last call, per direction in the order of submission. Never blocks.

        Raises:
            DriverError: a copy or kernel failed on the device; the engine is unusable, and what was in flight must
                count as lost.
        """
        self._refuse_broken()
        ended = []
        for lane in self._lanes.values():
            with self._breaking():
                while lane.flights and self._device.passed(lane.flights[0].done):
                    ended.append(self._land(lane.flights.popleft()))
        return ended

    def wait(self, numbers: Collection[int]) -> None:
        """Blocks until these transfers have ended; `finished` reports them afterwards.

        Numbers that already ended are passed over.
        """
        self._refuse_broken()
        for lane in self._lanes.values():
            for flight in lane.flights:
                if flight.transfer.number in numbers:
                    with self._breaking():
                        self._device.synchronize(flight.done)

    @property
    def in_flight(self) -> int:
        """Number of transfers that `finished` has not reported yet."""
        return sum(len(lane.flights) for lane in self._lanes.values())

    def stats(self) -> SwapStats:
        """Totals since the start."""
        return SwapStats(dict(self._size), dict(self._seconds), dict(self._transfers), self._mover.name)

    def close(self) -> None:
        """Waits for what is in flight and gives back staging, streams and events. The pool stays, and the mover."""
        for lane in self._lanes.values():
            for stream in (lane.cache, lane.bus):
                self._device.synchronize_stream(stream)
                self._device.destroy_stream(stream)
            for slab in lane.slabs:
                self._device.free(slab.address)
                self._spare_events += [slab.filled, slab.emptied]
            for flight in lane.flights:
                self._recycle(flight)
            lane.flights.clear()
        for event in self._spare_events:
            self._device.destroy_event(event)
        self._spare_events.clear()

    def _submit(self, direction: Direction, blocks: Ids, slots: Ids, after: Stream) -> Transfer:
        self._refuse_broken()
        ids = checked_ids("blocks", blocks, self._layout.blocks)
        places = checked_ids("slots", slots, self._pool.slots)
        if ids.size != places.size:
            raise LayoutError(f"{ids.size} blocks do not match {places.size} slots")
        path = choose_path(self._layout, ids.size, self._settings, batched_copy=self._device.info.batched_copy)
        with self._breaking():
            return self._enqueue(direction, path, ids, places, after)

    def _enqueue(self, direction: Direction, path: Path, ids: IdArray, places: IdArray, after: Stream) -> Transfer:
        lane = self._lanes[direction]
        self._number += 1
        transfer = Transfer(self._number, direction, path, ids.size, ids.size * self._layout.payload_bytes)
        flight = Flight(transfer, self._event(), self._event(), self._event())
        self._order(flight, ids, places, after)
        if path is Path.BATCH:
            self._batch(flight, ids, places)
        elif direction is Direction.STORE:
            self._gather(flight, ids, places)
        else:
            self._scatter(flight, ids, places)
        lane.flights.append(flight)
        return transfer

    def _order(self, flight: Flight, ids: IdArray, places: IdArray, after: Stream) -> None:
        """Rules 1 and 4.

        The cache stream waits for what is in the way of the blocks, the bus stream for what is in the way of the
        slots.
        """
        direction, lane = flight.transfer.direction, self._lanes[flight.transfer.direction]
        others = self._lanes[Direction.LOAD if direction is Direction.STORE else Direction.STORE].flights
        oldest = others[0].transfer.number if others else flight.transfer.number
        conflicts = self._ledger.enter(direction, flight.transfer.number, ids, places, oldest)
        by_number = {other.transfer.number: other for other in others}
        for number in conflicts.blocks:
            self._device.wait(lane.cache, by_number[number].cache_done)
        for number in conflicts.slots:
            self._device.wait(lane.bus, by_number[number].done)
        ready = self._event()
        self._device.record(ready, after)
        self._device.wait(lane.cache, ready)
        self._spare_events.append(ready)  # a wait holds for the record it saw, so the event is free again

    def _gather(self, flight: Flight, ids: IdArray, places: IdArray) -> None:
        lane, block_bytes = self._lanes[Direction.STORE], self._layout.block_bytes
        self._device.record(flight.start, lane.cache)
        for chunk, runs in self._chunks(places):
            slab = lane.next_slab()
            self._device.wait(lane.cache, slab.emptied)
            self._mover.gather(ids[chunk], slab.address, lane.cache)
            self._device.record(slab.filled, lane.cache)
            self._device.wait(lane.bus, slab.filled)
            for run in runs:
                staged = slab.address + (run.first - chunk.start) * block_bytes
                self._device.copy(run.address, staged, run.count * block_bytes, lane.bus)
            self._device.record(slab.emptied, lane.bus)
        self._device.record(flight.cache_done, lane.cache)
        self._device.record(flight.done, lane.bus)

    def _scatter(self, flight: Flight, ids: IdArray, places: IdArray) -> None:
        lane, block_bytes = self._lanes[Direction.LOAD], self._layout.block_bytes
        self._device.record(flight.start, lane.bus)
        for chunk, runs in self._chunks(places):
            slab = lane.next_slab()
            self._device.wait(lane.bus, slab.emptied)
            for run in runs:
                staged = slab.address + (run.first - chunk.start) * block_bytes
                self._device.copy(staged, run.address, run.count * block_bytes, lane.bus)
            self._device.record(slab.filled, lane.bus)
            self._device.wait(lane.cache, slab.filled)
            self._mover.scatter(ids[chunk], slab.address, lane.cache)
            self._device.record(slab.emptied, lane.cache)
        self._device.record(flight.cache_done, lane.cache)
        self._device.record(flight.done, lane.cache)

    def _chunks(self, places: IdArray) -> Iterator[tuple[slice, list[Run]]]:
        """What fits a slab, with the bus copies it takes. Found in one go: numpy's cost is per call, not per slot."""
        parts = list(chunks(places.size, self._blocks_per_slab))
        runs = iter(self._pool.runs(places, [part.start for part in parts]))
        for part in parts:
            mine, covered = [], part.start
            while covered < part.stop:
                run = next(runs)
                mine.append(run)
                covered += run.count
            yield part, mine

    def _batch(self, flight: Flight, ids: IdArray, places: IdArray) -> None:
        """Rules 3 and 5: stores on the bus stream, loads on the cache stream."""
        lane = self._lanes[flight.transfer.direction]
        store = flight.transfer.direction is Direction.STORE
        stream, beside = (lane.bus, lane.cache) if store else (lane.cache, lane.bus)
        self._device.record(flight.start, beside)
        self._device.wait(stream, flight.start)
        self._device.record(flight.start, stream)
        if ids.size:
            cached = self._layout.fragment_addresses(ids).ravel()
            hosted = self._layout.staged_addresses(self._pool.addresses(places)).ravel()
            to, source = (hosted, cached) if store else (cached, hosted)
            self._device.copy_batch(to, source, self._layout.fragment_sizes(ids.size).ravel(), stream)
        self._device.record(flight.cache_done, stream)
        self._device.record(flight.done, stream)
        if store:
            self._device.wait(beside, flight.done)

    def _land(self, flight: Flight) -> Finished:
        transfer = flight.transfer
        seconds = self._device.seconds_between(flight.start, flight.done)
        self._size[transfer.direction] += transfer.size
        self._seconds[transfer.direction] += seconds
        self._transfers[transfer.direction, transfer.path] += 1
        self._recycle(flight)
        return Finished(transfer, seconds)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """After an error of the device half a transfer may be on the streams: nothing later is sure to work."""
        try:
            yield
        except DriverError as error:
            self._broken = error
            raise

    def _make_lane(self) -> Lane:
        size = self._blocks_per_slab * self._layout.block_bytes
        slabs = tuple(
            StagingSlab(self._device.allocate(size), self._event(), self._event())
            for _ in range(self._settings.staging_slabs)
        )
        return Lane(self._device.create_stream(), self._device.create_stream(), slabs)

    def _event(self) -> Event:
        return self._spare_events.pop() if self._spare_events else self._device.create_event()

    def _recycle(self, flight: Flight) -> None:
        self._spare_events += [flight.start, flight.cache_done, flight.done]

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise SwapError(
                f"the swap engine is unusable since an error of the device: {self._broken}"
            ) from self._broken
