"""How long a call waits, and for what: for an engine to be there, or for room on one. No clock, no I/O."""

import msgspec


class Patience(msgspec.Struct, frozen=True):
    """How long calls wait at most."""

    room_seconds: float
    """For room, while engines serve."""
    engine_seconds: float
    """From a call's arrival on, for an engine that serves at all; 0: it is refused at once."""


class Wait(msgspec.Struct):
    """One call's wait. The two clocks are apart, so that a call that was held for minutes has not used up its time to
    wait for room when engines come.

    An engine that comes and goes does not prolong a wait for ever: once ``engine_seconds`` are over, the next moment
    without engines ends it. So it takes at most the sum of both.
    """

    came: float
    room_since: float | None = None
    """Since when there are engines to wait for room on; None while there is none: the call is held."""

    def sees(self, now: float, *, engine: bool) -> None:
        """Takes in whether an engine serves that could take the call, full or not."""
        if not engine:
            self.room_since = None
        elif self.room_since is None:
            self.room_since = now

    @property
    def held(self) -> bool:
        """Whether it waits for an engine to be there, as it was last seen."""
        return self.room_since is None

    def over(self, now: float, patience: Patience) -> bool:
        """Whether the call has to give up."""
        if self.room_since is None:
            return now >= self.came + patience.engine_seconds
        return now >= self.room_since + patience.room_seconds
