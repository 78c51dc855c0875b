"""What vLLM's processes need on CPUs, and only there: sleep while they wait for one another, and the use of AMX tiles.

vLLM's engine core and its worker hand steps over through shared memory, and whoever waits yields the processor in a
loop. Beside a GPU that takes one of many cores. On CPUs it takes a core from the model and from all else on the node
(``docs/decisions/0019``).

Linux lets a process use the tiles of a processor with AMX only after it has asked. Of vLLM's kernels some ask and some
do not: where the first call of an engine takes one that does not, the worker is ended (``docs/decisions/0022``).
"""

import time
from typing import Final

#: Between two looks. A step on CPUs takes milliseconds, and two such waits belong to it.
LOOK_SECONDS: Final = 50e-6


def install() -> None:
    """Called once in each of vLLM's processes. On a GPU it does nothing."""
    # Imported here: this module is found by its name in processes that have no use for any of them.
    import torch
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.distributed.device_communicators import shm_broadcast

        shm_broadcast.sched_yield = sleep_a_little
        torch.cpu._init_amx()  # asks for the tiles; of no effect on a processor without them


def sleep_a_little() -> None:
    """In place of ``sched_yield``."""
    time.sleep(LOOK_SECONDS)
