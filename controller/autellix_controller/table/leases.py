"""Expiry without a keep-alive for each program: leases shared by all programs written in one stretch of time."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from autellix_controller.table.store import EtcdStore, StoreAway

_BUCKETS_PER_TIMEOUT: Final = 10
_MAX_BUCKET_SECONDS: Final = 60.0
_MIN_BUCKET_SECONDS: Final = 1.0


class ExpiryLeases:
    """One lease for each bucket of time; every write of an entry attaches it to the present one.

    A lease is never renewed. It lives for the session timeout plus two buckets: one because a write may come at the
    end of its bucket, one because the clocks of two replicas may differ. So an entry lives for at least the session
    timeout after its last activity, and for at most two buckets more after its last write.
    ``clock_ms`` tells Unix milliseconds.
    """

    def __init__(self, store: EtcdStore, *, session_timeout_seconds: float, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms
        seconds = min(_MAX_BUCKET_SECONDS, max(_MIN_BUCKET_SECONDS, session_timeout_seconds / _BUCKETS_PER_TIMEOUT))
        self.bucket_seconds: Final = seconds
        self.ttl_seconds: Final = math.ceil(session_timeout_seconds + 2 * seconds)
        self._bucket = -1
        self._grant: asyncio.Task[int] | None = None

    def bucket(self, time_ms: int) -> int:
        """Number of the bucket that a time falls into."""
        return int(time_ms / 1000 // self.bucket_seconds)

    async def current(self) -> int:
        """Lease of the present bucket, granted at the first need; many callers share one grant. Raises StoreAway."""
        bucket = self.bucket(self._clock_ms())
        failed = self._grant is not None and self._grant.done() and not _succeeded(self._grant)
        if self._grant is None or failed or bucket != self._bucket:
            self._bucket = bucket
            self._grant = asyncio.create_task(self._store.grant(self.ttl_seconds), name="grant expiry lease")
        return await asyncio.shield(self._grant)

    def forget(self, lease: int) -> None:
        """The store does not know this lease (any more): the next write needs another."""
        if self._grant is not None and self._grant.done() and _succeeded(self._grant) and self._grant.result() == lease:
            self._grant = None

    async def close(self) -> None:
        """Stops a grant under way."""
        if self._grant is not None:
            self._grant.cancel()
            await asyncio.gather(self._grant, return_exceptions=True)


def _succeeded(grant: asyncio.Task[int]) -> bool:
    if grant.cancelled():
        return False
    error = grant.exception()
    if error is not None and not isinstance(error, StoreAway):
        raise error
    return error is None
