"""How much memory an engine needs, from what the spec says of model and devices. Pure functions.

Without GPUs the weights lie in the container's own memory. With GPUs they only pass through the page cache, which is
given back under pressure: what counts is the processes, one for each device and those of the server.
"""

from typing import Final

from autellix_operator.api.base import size_in_bytes
from autellix_operator.api.engine import Engine
from autellix_operator.api.spec import Spec

#: The server's processes: Python, torch and vLLM in two of them.
_SERVER_BYTES: Final = 2 << 30
#: The worker of one device: its context and its libraries.
_DEVICE_BYTES: Final = 1 << 30
_SHARED_BYTES: Final = 1 << 30
#: Buffers of the collective operations and of the workers' queues, for each device.
_SHARED_DEVICE_BYTES: Final = 512 << 20


def shared_memory(engine: Engine) -> str:
    """Most shared memory of an engine, as a quantity."""
    return engine.shared_memory_size or _quantity(_SHARED_BYTES + engine.devices * _SHARED_DEVICE_BYTES)


def requested_memory(spec: Spec) -> str:
    """Memory that an engine's container is promised, as a quantity."""
    engine = spec.engine
    if engine.memory is not None:
        return engine.memory
    needed = _SERVER_BYTES + engine.devices * _DEVICE_BYTES + size_in_bytes(shared_memory(engine)) + engine.swap_bytes
    if engine.gpu is None and spec.model.weights_size is not None:
        needed += size_in_bytes(spec.model.weights_size)
    return _quantity(needed)


def _quantity(number: int) -> str:
    return f"{number >> 20}Mi"
