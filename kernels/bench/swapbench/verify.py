"""Every byte, before anything is measured."""

import numpy as np

from autellix_kernels.plan import Direction
from autellix_kernels.settings import SwapSettings
from swapbench.cases import Method, Plan, Traffic, geometry
from swapbench.methods import open_method
from swapbench.rig import Rig

MOVES_BLOCKS: tuple[Method, ...] = (Method.BATCH, Method.GATHER, Method.OURS, Method.LOOP)


class WrongBytes(Exception):
    """A method moved something wrongly; nothing it measures would mean anything."""


def directions(traffic: Traffic) -> tuple[Direction, ...]:
    """What is submitted for a kind of traffic."""
    return tuple(Direction) if traffic is Traffic.BOTH else (Direction(traffic.value),)


def verify(rig: Rig, plan: Plan, method: Method, fragment_bytes: int, traffic: Traffic) -> int:
    """Moves random bytes, and compares all of cache and slots, also what must not have changed, with numpy.

    Returns:
        The number of bytes compared.

    Raises:
        WrongBytes: with the first difference.
    """
    shape = geometry(fragment_bytes, plan.verified_total)
    if shape is None:
        return 0
    site = rig.site(shape)
    rig.fill(site)
    cache, slots = rig.cache_bytes(site), rig.slot_bytes(site)
    mover = open_method(method, rig, site, SwapSettings())
    for direction in directions(traffic):
        mover.submit(direction)
        if direction is Direction.STORE:
            slots[site.stored_slots] = cache[:, site.stored_blocks].transpose(1, 0, 2)
        else:
            cache[:, site.loaded_blocks] = slots[site.loaded_slots].transpose(1, 0, 2)
    mover.wait()
    mover.close()
    case = f"{method}, {traffic}, fragments of {fragment_bytes} bytes"
    _compare(f"{case}: (tensor, block, byte) of the cache", rig.cache_bytes(site), cache)
    _compare(f"{case}: (slot, tensor, byte) of the host", rig.slot_bytes(site), slots)
    return cache.size + slots.size


def _compare(what: str, actual: np.ndarray, expected: np.ndarray) -> None:
    if not np.array_equal(actual, expected):
        wrong = np.argwhere(actual != expected)
        raise WrongBytes(f"{what}: {len(wrong)} bytes differ, the first at {wrong[0].tolist()}")
