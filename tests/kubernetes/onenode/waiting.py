"""Waiting for a condition, with an end to it."""

import time
from collections.abc import Callable

from onenode.errors import OnenodeError

POLL_SECONDS = 0.05


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    seconds: float,
    poll_seconds: float = POLL_SECONDS,
    detail: Callable[[], str] = lambda: "",
) -> None:
    """Returns as soon as ``condition`` holds; an OSError from it means "not yet".

    Raises OnenodeError that says what was awaited, with ``detail`` of that moment, when it does not hold within
    ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not _holds(condition):
        if time.monotonic() > deadline:
            raise OnenodeError("\n".join(filter(None, [f"{what}: not within {seconds:.0f} s", detail()])))
        time.sleep(poll_seconds)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except OSError:
        return False
