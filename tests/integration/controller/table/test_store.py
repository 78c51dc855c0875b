"""What the store makes of etcd's transactions."""

import time
from collections.abc import AsyncIterator

import pytest

from autellix_controller.table.channel import Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.store import MAX_SWAPS, EtcdStore, Swap, Swapped
from support.etcd import Etcd
from support.tables import TIMINGS


@pytest.fixture
async def store(shared_etcd: Etcd) -> AsyncIterator[EtcdStore]:
    members = Members(shared_etcd.url.removeprefix("etcd://").split(","))
    yield EtcdStore(members, Contact(TIMINGS, clock=time.monotonic), TIMINGS)
    await members.close()


def swaps(folder: bytes, count: int, *, expected: int = 0, data: bytes = b"first") -> list[Swap]:
    return [Swap(folder + b"%03d" % number, expected, data, lease=0) for number in range(count)]


async def test_as_many_swaps_as_allowed_are_one_transaction(store: EtcdStore) -> None:
    wanted = swaps(b"/store/many/", MAX_SWAPS)
    revision, outcomes = await store.swap(wanted)
    assert outcomes == [Swapped(done=True)] * MAX_SWAPS
    for swap in (wanted[0], wanted[-1]):
        _, value = await store.read(swap.key)
        assert value is not None
        assert (value.data, value.revision) == (b"first", revision)


async def test_a_swap_that_lost_holds_up_no_other_and_says_what_stood_in_its_way(store: EtcdStore) -> None:
    first, _ = await store.swap(swaps(b"/store/lost/", MAX_SWAPS - 1))
    (moved,) = swaps(b"/store/lost/", 1, expected=first, data=b"theirs")
    theirs, _ = await store.swap([moved])
    gone = Swap(b"/store/lost/never", first, b"ours", lease=0)
    rest = swaps(b"/store/lost/", MAX_SWAPS - 1, expected=first, data=b"ours")
    revision, outcomes = await store.swap([*rest, gone])
    assert [outcome.done for outcome in outcomes] == [False, *[True] * (MAX_SWAPS - 2), False]
    assert outcomes[0].current is not None
    assert (outcomes[0].current.data, outcomes[0].current.revision) == (b"theirs", theirs)
    assert outcomes[-1].current is None
    for number in (1, MAX_SWAPS - 2):
        _, value = await store.read(b"/store/lost/%03d" % number)
        assert value is not None
        assert (value.data, value.revision) == (b"ours", revision)
