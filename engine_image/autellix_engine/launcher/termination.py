"""Tells Kubernetes why an engine ended: one line in the container's termination log."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autellix_engine.launcher import handover

_DEFAULT: Final = "/dev/termination-log"
#: What Kubernetes keeps of it.
_MAX_BYTES: Final = 4096


def explain(message: str, env: Mapping[str, str]) -> None:
    """Writes ``message`` to the termination log, where there is one: outside of a container there is none.

    What stands there stays: each container begins with an empty one, and whoever writes after another tells of a
    consequence. Raises OSError.
    """
    path = Path(env.get(handover.TERMINATION_LOG, _DEFAULT))
    if path.is_file() and os.access(path, os.W_OK) and path.stat().st_size == 0:
        path.write_bytes((message + "\n").encode()[:_MAX_BYTES])
