"""Which keys engines accept while the one in use is exchanged. Pure: time is passed in."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

#: How long former keys are accepted. A kubelet brings a changed Secret into its pods within two minutes; the rest is
#: for nodes that are slow or have just lost their kubelet.
FORMER_KEYS: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class AcceptedKeys:
    """The keys that engines accept, first the one that controllers are to use."""

    keys: tuple[str, ...] = field(repr=False)
    until: datetime | None = None
    """When all but the first are dropped; None if there is only one."""


def next_keys(used: str, accepted: AcceptedKeys, now: datetime) -> AcceptedKeys:
    """What to accept from now on, given the key to use and what has been accepted so far.

    A key that is no longer used stays accepted for ``FORMER_KEYS``; one more exchange meanwhile gives all former keys
    that time anew, since pods may not have learned of the one between. It follows from the two arguments alone, so it
    may be asked at any time and as often as one likes.
    """
    former = tuple(key for key in dict.fromkeys(accepted.keys) if key != used)
    longest = now + FORMER_KEYS
    exchanged = accepted.keys[:1] != (used,)
    until = longest if exchanged or accepted.until is None else min(accepted.until, longest)
    return AcceptedKeys((used, *former), until) if former and now < until else AcceptedKeys((used,))
