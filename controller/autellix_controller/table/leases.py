"""Expiry without a keep-alive for each program: leases shared by all programs written in one stretch of time."""

import math
from collections.abc import Callable
from typing import Final

from autellix_controller.background import SingleFlight
from autellix_controller.table.store import EtcdStore

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
        self._held: tuple[int, int] | None = None
        """The newest bucket and its lease."""
        self._granting: SingleFlight[int, int] = SingleFlight()

    def bucket(self, time_ms: int) -> int:
        """Number of the bucket that a time falls into."""
        return int(time_ms / 1000 // self.bucket_seconds)

    async def current(self) -> int:
        """Lease of the present bucket, granted at the first need; many callers share one grant. Raises StoreAway."""
        bucket = self.bucket(self._clock_ms())
        if self._held is None or self._held[0] != bucket:
            lease = await self._granting.run(bucket, lambda: self._store.grant(self.ttl_seconds))
            self._held = (bucket, lease)
        return self._held[1]

    def forget(self, lease: int) -> None:
        """The store does not know this lease (any more): the next write needs another."""
        if self._held is not None and self._held[1] == lease:
            self._held = None
