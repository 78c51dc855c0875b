"""Our general plugin of vLLM: what each of its processes needs before it does anything.

A process that was not started by our launcher, such as a stock vLLM of the same environment, is left alone.
"""

import os

from autellix_engine import fatal, on_cpus
from autellix_engine.launcher import handover


def install() -> None:
    """Called once in each of vLLM's processes: server, engine core, workers."""
    if handover.RECORDS_SOCKET in os.environ:
        fatal.install(os.environ)  # first: what comes next may fail
        on_cpus.install()
