"""The competitors behind one interface: submit a store or a load, wait for all."""

from typing import Protocol

import numpy as np

from autellix_kernels.engine import SwapEngine
from autellix_kernels.plan import Direction
from autellix_kernels.settings import SwapSettings
from swapbench.cases import Method
from swapbench.rig import Rig, Site

ALWAYS_GATHER = SwapSettings(gather_below_bytes=1 << 62, gather_from_fragments=0)


class Mover(Protocol):
    """One way to move a site's blocks."""

    def submit(self, direction: Direction) -> None:
        """Puts one transfer on the way."""

    def in_flight(self) -> bool:
        """Whether something may still be on the way."""

    def wait(self) -> None:
        """Blocks until all has arrived."""

    def close(self) -> None:
        """Gives back what it holds; nothing may be on the way."""


class _OnStreams:
    """What the ways without an engine share: a stream per direction."""

    def __init__(self, rig: Rig, site: Site) -> None:
        self._rig = rig
        self._site = site
        self._device = rig.device
        self._streams = {direction: rig.device.create_stream() for direction in Direction}
        self._last = {direction: rig.device.create_event() for direction in Direction}

    def in_flight(self) -> bool:
        """See `Mover`."""
        return not all(self._device.passed(event) for event in self._last.values())

    def wait(self) -> None:
        """See `Mover`."""
        for stream in self._streams.values():
            self._device.synchronize_stream(stream)

    def close(self) -> None:
        """See `Mover`."""
        for direction in Direction:
            self._device.destroy_stream(self._streams[direction])
            self._device.destroy_event(self._last[direction])


class LargeCopy(_OnStreams):
    """One pinned copy of the same size: what the bus can do."""

    def submit(self, direction: Direction) -> None:
        """See `Mover`."""
        self._rig.large_copy(self._site, store=direction is Direction.STORE, stream=self._streams[direction])
        self._device.record(self._last[direction], self._streams[direction])


class _Fragments(_OnStreams):
    """Addresses of all fragments, prepared as an engine would find them prepared."""

    def __init__(self, rig: Rig, site: Site) -> None:
        super().__init__(rig, site)
        layout, pool = site.layout, site.pool
        hosted = {
            Direction.STORE: layout.staged_addresses(pool.addresses(site.stored_slots)).ravel(),
            Direction.LOAD: layout.staged_addresses(pool.addresses(site.loaded_slots)).ravel(),
        }
        cached = {
            Direction.STORE: layout.fragment_addresses(site.stored_blocks).ravel(),
            Direction.LOAD: layout.fragment_addresses(site.loaded_blocks).ravel(),
        }
        self._to = {Direction.STORE: hosted[Direction.STORE], Direction.LOAD: cached[Direction.LOAD]}
        self._source = {Direction.STORE: cached[Direction.STORE], Direction.LOAD: hosted[Direction.LOAD]}
        self._sizes = layout.fragment_sizes(site.geometry.blocks).ravel()


class BatchedCopy(_Fragments):
    """One batched copy of the driver."""

    def submit(self, direction: Direction) -> None:
        """See `Mover`."""
        self._device.copy_batch(self._to[direction], self._source[direction], self._sizes, self._streams[direction])
        self._device.record(self._last[direction], self._streams[direction])


class CopyLoop(_Fragments):
    """One copy per fragment, the oldest way."""

    def submit(self, direction: Direction) -> None:
        """See `Mover`."""
        stream = self._streams[direction]
        triples = np.stack([self._to[direction], self._source[direction], self._sizes], axis=1).tolist()
        for to, source, size in triples:
            self._device.copy(to, source, size, stream)
        self._device.record(self._last[direction], stream)


class EngineMove:
    """The swap engine."""

    def __init__(self, rig: Rig, site: Site, settings: SwapSettings) -> None:
        self._device = rig.device
        self._site = site
        self._mover = rig.mover(site.layout, settings)
        self._engine = SwapEngine(rig.device, site.layout, site.pool, self._mover, settings)
        self._model = rig.device.create_stream()  # empty: nothing to be ordered after
        self._numbers: list[int] = []

    def submit(self, direction: Direction) -> None:
        """See `Mover`."""
        site = self._site
        if direction is Direction.STORE:
            transfer = self._engine.store(site.stored_blocks, site.stored_slots, after=self._model)
        else:
            transfer = self._engine.load(site.loaded_slots, site.loaded_blocks, after=self._model)
        self._numbers.append(transfer.number)

    def in_flight(self) -> bool:
        """See `Mover`."""
        self._engine.finished()
        return self._engine.in_flight > 0

    def wait(self) -> None:
        """See `Mover`."""
        self._engine.wait(set(self._numbers))
        self._engine.finished()
        self._numbers.clear()

    def close(self) -> None:
        """See `Mover`."""
        self._engine.close()
        self._mover.close()
        self._device.destroy_stream(self._model)


def open_method(method: Method, rig: Rig, site: Site, settings: SwapSettings) -> Mover:
    """A method on a site; `settings` are those of `OURS`."""
    match method:
        case Method.LARGE:
            return LargeCopy(rig, site)
        case Method.BATCH:
            return BatchedCopy(rig, site)
        case Method.LOOP:
            return CopyLoop(rig, site)
        case Method.GATHER:
            return EngineMove(rig, site, ALWAYS_GATHER)
        case Method.OURS:
            return EngineMove(rig, site, settings)
