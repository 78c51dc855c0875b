"""What a tenant may do in a minute: token buckets, with time passed in."""

import math
from collections.abc import Callable
from typing import Final

from autellix_controller.access import KeyLimits
from autellix_controller.errors import ApiError, ErrorCode

_MINUTE: Final = 60.0


class Bucket:
    """A token bucket that holds one minute's worth and may go into debt.

    What a call costs in tokens is known only after it ended, so a call starts while the bucket is not empty, and what
    it took beyond that is paid back before the next one starts.
    """

    def __init__(self, a_minute: int, now: float) -> None:
        self._rate, self._level, self._at = a_minute / _MINUTE, float(a_minute), now
        self.a_minute = a_minute

    def _refill(self, now: float) -> None:
        self._level = min(self._level + max(0.0, now - self._at) * self._rate, float(self.a_minute))
        self._at = now

    def change(self, a_minute: int, now: float) -> None:
        """Another limit from now on; what was used stays used."""
        self._refill(now)
        self.a_minute, self._rate = a_minute, a_minute / _MINUTE

    def wait_seconds(self, now: float, amount: float) -> float:
        """Seconds until the bucket holds ``amount`` (at most a full bucket); 0 if it does now."""
        self._refill(now)
        return max(0.0, min(amount, float(self.a_minute)) - self._level) / self._rate

    def spend(self, amount: float, now: float) -> None:
        """Takes so much out, below zero if need be."""
        self._refill(now)
        self._level -= amount


class TenantRates:
    """Requests and tokens a minute of every tenant that has a limit."""

    def __init__(self, limits: Callable[[str], KeyLimits], clock: Callable[[], float]) -> None:
        """``limits`` says what a tenant may do now; ``clock`` is monotonic seconds."""
        self._limits, self._clock = limits, clock
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def _bucket(self, tenant: str, kind: str, a_minute: int | None, now: float) -> Bucket | None:
        if a_minute is None:
            self._buckets.pop((tenant, kind), None)
            return None
        bucket = self._buckets.get((tenant, kind))
        if bucket is None:
            bucket = self._buckets[tenant, kind] = Bucket(a_minute, now)
        elif bucket.a_minute != a_minute:
            bucket.change(a_minute, now)
        return bucket

    def admit(self, tenant: str) -> None:
        """Counts a request of the tenant. Raises ApiError 429 if one of its limits forbids it now."""
        limits = self._limits(tenant)
        if limits.requests_per_minute is None and limits.tokens_per_minute is None:
            return
        now = self._clock()
        requests = self._bucket(tenant, "requests", limits.requests_per_minute, now)
        tokens = self._bucket(tenant, "tokens", limits.tokens_per_minute, now)
        for bucket, what in ((requests, "requests"), (tokens, "tokens")):
            wait = bucket.wait_seconds(now, 1.0) if bucket is not None else 0.0
            if bucket is not None and wait > 0:
                raise ApiError(
                    ErrorCode.RATE_LIMIT_EXCEEDED,
                    f"The limit of {bucket.a_minute} {what} a minute of {tenant} is reached.",
                    param=f"{what}_per_minute",
                    retry_after_seconds=math.ceil(wait),
                )
        if requests is not None:
            requests.spend(1.0, now)

    def spend_tokens(self, tenant: str, tokens: int) -> None:
        """Charges tokens that a call of the tenant took."""
        a_minute = self._limits(tenant).tokens_per_minute
        if a_minute is None:
            return
        now = self._clock()
        bucket = self._bucket(tenant, "tokens", a_minute, now)
        if bucket is not None:
            bucket.spend(tokens, now)
