"""The CPU stand-in itself: what it allows, and what it refuses as CUDA would."""

import random

import numpy as np
import pytest

from autellix_kernels.errors import DriverError, SwapError
from autellix_kernels.host.device import HostDevice
from autellix_kernels.layout import AddressArray


def addresses(*values: int) -> AddressArray:
    return np.array(values, np.uint64)


def test_a_wait_holds_for_the_record_it_saw_though_the_event_is_recorded_anew_elsewhere() -> None:
    device = HostDevice()
    slow, waiting, other = (device.create_stream() for _ in range(3))
    event, done = device.create_event(), []
    device.stall(slow)
    device.record(event, slow)
    device.wait(waiting, event)
    device.submit(waiting, lambda: done.append("after slow"))
    device.record(event, other)
    assert device.passed(event)
    assert done == []
    device.resume(slow)
    assert done == ["after slow"]


def test_without_events_every_order_of_two_streams_happens() -> None:
    seen = set()
    for seed in range(40):
        device, order = HostDevice(random.Random(seed)), ""
        streams = device.create_stream(), device.create_stream()
        ran: list[str] = []
        for name, stream in zip("ab", streams, strict=True):
            device.submit(stream, lambda name=name, ran=ran: ran.append(name))  # type: ignore[misc]
        for stream in streams:
            device.synchronize_stream(stream)
        order = "".join(ran)
        seen.add(order)
    assert seen == {"ab", "ba"}


def test_streams_that_wait_for_each_other_are_a_deadlock_not_a_hang() -> None:
    device = HostDevice(random.Random(1))
    one, other = device.create_stream(), device.create_stream()
    event = device.create_event()
    device.stall(other)
    device.record(event, other)
    device.wait(one, event)
    with pytest.raises(SwapError, match="deadlock"):
        device.synchronize_stream(one)


def test_a_batched_copy_outside_of_known_memory_is_refused_until_it_is_adopted() -> None:
    device = HostDevice()
    stream, pinned = device.create_stream(), device.allocate_pinned(64)
    tensor = np.arange(64, dtype=np.uint8)
    batch = addresses(pinned), addresses(tensor.ctypes.data), addresses(64)
    with pytest.raises(DriverError, match="not in memory of the device"):
        device.copy_batch(*batch, stream)
    device.adopt(tensor.ctypes.data, tensor.size)
    device.copy_batch(*batch, stream)
    np.testing.assert_array_equal(device.view(pinned, 64), tensor)
    device.free(tensor.ctypes.data)
    with pytest.raises(DriverError, match="was not allocated here"):
        device.free(tensor.ctypes.data)


def test_an_empty_batch_is_refused_as_by_the_driver() -> None:
    device = HostDevice()
    with pytest.raises(DriverError, match="an empty batch"):
        device.copy_batch(addresses(), addresses(), addresses(), device.create_stream())
