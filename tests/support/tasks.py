"""Tasks that run beside a test."""

import asyncio
from collections.abc import Sequence


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancels them, and returns when all have ended. Raises what one of them failed with."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
