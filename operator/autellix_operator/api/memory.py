"""How much host memory an engine needs, from what the spec says of model and devices. Pure functions.

Without GPUs the weights lie in the container's own memory. With GPUs they only pass through the page cache, which is
given back under pressure: what counts is the processes, one for each device and those of the server.
"""

from typing import Final

from autellix_operator.api.base import size_in_bytes
from autellix_operator.api.engine import Engine, Model

#: The server's processes: Python, torch and vLLM in two of them.
_SERVER_BYTES: Final = 2 << 30
#: The worker of one device: its context and its libraries.
_DEVICE_BYTES: Final = 1 << 30
_SHARED_BYTES: Final = 1 << 30
#: Buffers of the collective operations and of the workers' queues, for each device.
_SHARED_DEVICE_BYTES: Final = 512 << 20


def shared_memory_bytes(engine: Engine) -> int:
    """Most shared memory of an engine."""
    if engine.shared_memory_size is not None:
        return size_in_bytes(engine.shared_memory_size)
    return _SHARED_BYTES + engine.devices * _SHARED_DEVICE_BYTES


def needed_bytes(engine: Engine, model: Model) -> int:
    """The least memory of an engine's container: with less it is ended, at the latest when all of it is in use."""
    needed = _SERVER_BYTES + engine.devices * _DEVICE_BYTES + shared_memory_bytes(engine) + engine.swap_bytes
    if engine.gpu is None and model.weights_size is not None:
        needed += size_in_bytes(model.weights_size)
    return needed
