"""Whether the store answers, and whether it is worth asking."""

from collections.abc import Callable

from autellix_controller.table.timings import Timings


class Contact:
    """The outcome of the last write, so that an outage costs one caller a wait and not all of them.

    ``clock`` counts seconds and never goes back. For ``timings.retry`` after a failure nobody needs to try; then one
    caller does, for the others too.
    """

    def __init__(self, timings: Timings, *, clock: Callable[[], float]) -> None:
        self._retry_seconds = timings.retry
        # A lease may have to be granted before what is written under it.
        self._try_seconds = 2 * timings.call
        self._clock = clock
        self._reason = ""
        self._away_since: float | None = None
        self._next_try = 0.0

    @property
    def away(self) -> bool:
        """The last write failed."""
        return self._away_since is not None

    def claim(self) -> bool:
        """Whether the caller should ask the store: it is not away, or nobody has tried for long enough. Then the
        caller is the one who tries, and others are told no until the outcome is known."""
        if not self.away:
            return True
        now = self._clock()
        if now < self._next_try:
            return False
        self._next_try = now + self._try_seconds
        return True

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
        now = self._clock()
        self._next_try = now + self._retry_seconds
        self._reason = reason
        if self._away_since is None:
            self._away_since = now

    def unread(self) -> None:
        """A read had no answer. While writes fail that is the same trouble, and puts off the next try."""
        if self.away:
            self._next_try = self._clock() + self._retry_seconds
