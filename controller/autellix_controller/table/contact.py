"""Whether the store answers, and whether it is worth asking."""

from collections.abc import Callable


class Contact:
    """The outcome of the last write, so that an outage costs one caller a wait and not all of them.

    ``clock`` counts seconds and never goes back. For ``retry_seconds`` after a failure nobody needs to try.
    """

    def __init__(self, *, retry_seconds: float, clock: Callable[[], float]) -> None:
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._reason = ""
        self._away_since: float | None = None
        self._last_failure = 0.0

    @property
    def away(self) -> bool:
        """The last write failed."""
        return self._away_since is not None

    @property
    def worth_trying(self) -> bool:
        """Not away, or away for long enough since the last try."""
        return not self.away or self._clock() - self._last_failure >= self._retry_seconds

    @property
    def detail(self) -> str:
        """For people: since when and why; empty when all is well."""
        if self._away_since is None:
            return ""
        return f"writes to etcd fail for {self._clock() - self._away_since:.0f} s: {self._reason}"

    @property
    def cause(self) -> str:
        """``detail`` without the time; empty when all is well."""
        return "" if self._away_since is None else f"writes to etcd fail: {self._reason}"

    def succeeded(self) -> None:
        """A write was answered."""
        self._away_since = None
        self._reason = ""

    def failed(self, reason: str) -> None:
        """A write was refused or its outcome is not known."""
        self._last_failure = self._clock()
        self._reason = reason
        if self._away_since is None:
            self._away_since = self._last_failure
