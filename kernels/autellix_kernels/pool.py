"""Host memory for swapped blocks: pinned slabs, taken once at start, addressed in slots of one staged block."""

import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autellix_kernels.device import Device
from autellix_kernels.errors import DriverError, LayoutError, PinnedMemoryError
from autellix_kernels.layout import WORD_BYTES, AddressArray, IdArray

SLAB_BYTES = 1 << 30
"""Size of a slab: pinning in pieces keeps the driver's time per call short and says how far it came when it fails."""

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Slab:
    """A contiguous piece of pinned host memory; size in bytes."""

    address: int
    size: int


@dataclass(frozen=True)
class Run:
    """Consecutive slots of one slab: `count` slots from `address` on, for the blocks from `first` on of a transfer."""

    first: int
    count: int
    address: int


class HostPool:
    """Slots of `slot_bytes` in slabs.

    Slot numbers run through the slabs; a slot never straddles two. It holds no record of what is used: a manager does.
    """

    def __init__(self, slabs: Sequence[Slab], slot_bytes: int) -> None:
        """Divides slabs into slots.

        Raises:
            LayoutError: unequal slabs, a bad slot size, or slabs too small for one slot.
        """
        if slot_bytes <= 0 or slot_bytes % WORD_BYTES:
            raise LayoutError(f"slot_bytes: {slot_bytes} is not a positive multiple of {WORD_BYTES}")
        if not slabs or len({slab.size for slab in slabs}) != 1 or slabs[0].size < slot_bytes:
            raise LayoutError(
                f"slabs must be of one size of at least {slot_bytes} bytes, got {[slab.size for slab in slabs]}"
            )
        self.slot_bytes = slot_bytes
        self._per_slab = slabs[0].size // slot_bytes
        self._bases = np.array([slab.address for slab in slabs], dtype=np.uint64)
        self.slots = self._per_slab * len(slabs)

    def addresses(self, slots: IdArray) -> AddressArray:
        """Address of each slot."""
        slab, place = np.divmod(slots.astype(np.uint64), np.uint64(self._per_slab))
        addresses: AddressArray = self._bases[slab] + place * np.uint64(self.slot_bytes)
        return addresses

    def runs(self, slots: IdArray, cuts: Sequence[int] = ()) -> Iterator[Run]:
        """Cuts a list of slots into runs that one copy can move each, in their order.

        Slots side by side in one slab give one run, but none goes beyond a position in `cuts`.
        """
        if slots.size == 0:
            return
        addresses = self.addresses(slots)
        # Slabs may happen to touch in memory, but a copy must not cross from one allocation into another.
        apart = (np.diff(addresses) != self.slot_bytes) | (np.diff(slots // self._per_slab) != 0)
        starts = sorted({0, *cuts, *(np.flatnonzero(apart) + 1).tolist()})
        for first, end, address in zip(starts, [*starts[1:], slots.size], addresses[starts].tolist(), strict=True):
            yield Run(first, end - first, address)


@dataclass(frozen=True)
class MemoryFacts:
    """What limits host memory, in bytes; None: no limit.

    Attributes:
        available: what the machine can give without swapping (MemAvailable).
        container: what the container's limit leaves, not counting reclaimable page cache.
        locked: RLIMIT_MEMLOCK. The driver of NVIDIA does not count against it as a rule, so it is told, not enforced.
    """

    available: int
    container: int | None
    locked: int | None


def read_memory_facts(root: Path = Path("/")) -> MemoryFacts:
    """Reads /proc and the container's own cgroup (version 2, or 1) below `root`."""
    meminfo = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return MemoryFacts(
        available=int(meminfo["MemAvailable"].split()[0]) * 1024,
        container=_container_rest(root / "sys/fs/cgroup"),
        locked=None if locked == resource.RLIM_INFINITY else locked,
    )


def memory_limit(root: Path = Path("/")) -> int:
    """What this container may use in all, or the machine has where there is no limit, in bytes."""
    meminfo = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    machine = int(meminfo["MemTotal"].split()[0]) * 1024
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        path = root / "sys/fs/cgroup" / name
        if path.is_file() and (text := path.read_text().strip()) != "max":
            return min(machine, int(text))
    return machine


def check_fits(size: int, facts: MemoryFacts, setting: str) -> None:
    """Refuses a pool that the kernel would answer with the out-of-memory killer.

    Args:
        size: bytes asked for.
        setting: name of the setting that asks for them, for the message.

    Raises:
        PinnedMemoryError: it does not fit.
    """
    limits = {
        "memory available on the machine": facts.available,
        "memory left under the container's limit": facts.container,
    }
    for what, limit in limits.items():
        if limit is not None and size > limit:
            raise PinnedMemoryError(
                f"{setting} asks for {_gib(size)} of pinned host memory, "
                f"more than the {what} ({_gib(limit)}); lower {setting} or give the container more"
            )


class PinnedMemory:
    """Pinned slabs of one size, held until `close`."""

    def __init__(
        self, device: Device, size: int, *, setting: str, facts: MemoryFacts, slab_bytes: int = SLAB_BYTES
    ) -> None:
        """Takes all of it now. Blocks: pinning takes about a second for 4 GiB.

        Args:
            size: bytes; cut into equal slabs of at most `slab_bytes`, each rounded down to whole pages.
            setting: name of the setting that declares `size`, for messages.

        Raises:
            PinnedMemoryError: it cannot be had; what was taken is given back.
        """
        if size < PAGE_BYTES:
            raise PinnedMemoryError(f"{setting}: {size} is not allowed, must be {PAGE_BYTES} bytes or more")
        check_fits(size, facts, setting)
        self._device = device
        self.slabs: list[Slab] = []
        count = -(-size // slab_bytes)
        each = size // count // PAGE_BYTES * PAGE_BYTES
        try:
            for _ in range(count):
                self.slabs.append(Slab(device.allocate_pinned(each), each))
        except DriverError as error:
            taken = len(self.slabs) * each
            self.close()
            locked = "unlimited" if facts.locked is None else f"{facts.locked} bytes"
            raise PinnedMemoryError(
                f"{setting} asks for {_gib(size)} of pinned host memory, "
                f"but the driver stopped at {_gib(taken)}: {error}. "
                f"Limit of locked memory (ulimit -l): {locked}. Lower {setting}, or raise what limits it"
            ) from error

    def close(self) -> None:
        """Gives everything back; nothing may use it any more."""
        for slab in self.slabs:
            self._device.free_pinned(slab.address)
        self.slabs.clear()


def _container_rest(cgroup: Path) -> int | None:
    for folder, limit_file, usage_file, cache in (
        (cgroup, "memory.max", "memory.current", "inactive_file"),
        (cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        if (folder / limit_file).is_file():
            text = (folder / limit_file).read_text().strip()
            if text == "max":
                return None
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return int(text) - int((folder / usage_file).read_text()) + int(stat.get(cache, 0))
    return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
