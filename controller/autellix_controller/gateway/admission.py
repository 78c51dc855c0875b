"""Which waiting call may start next, as a pure decision core: no clock, no I/O, no tasks.

Calls wait when no engine that could serve them has room, or their tenant runs as many as it may. Rules:

- A free slot goes to the tenant with the fewest running calls (max-min fairness); among equals to the one whose last
  start is longest ago.
- Within a tenant the call whose program has had the least service goes first, then the one that came first: the order
  of PLAS, one step before the engines' own queues.
- A call that cannot start yet (its engines are full) never holds up one that can.
- The queue is bounded. If it is full, a tenant that has fewer calls in it than another displaces the other's last
  call, so that no tenant can fill it against the others. Otherwise the last one of the newcomer's own tenant goes.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Hashable

import msgspec


class Waiting(msgspec.Struct, frozen=True):
    """A call that waits."""

    key: int
    """Unique, and later calls have greater ones."""
    tenant: str
    lane: Hashable
    """Calls of one lane may go to the same engines."""
    service_ms: float
    """Service that its program has had when it came."""


_Position = tuple[float, int]


class AdmissionQueue:
    """Calls that wait, and how many run for each tenant."""

    def __init__(self, limit: int) -> None:
        """``limit``: calls that may wait in all."""
        self._limit = limit
        self._calls: dict[int, Waiting] = {}
        self._lanes: dict[str, dict[Hashable, list[_Position]]] = {}
        """By tenant and lane: positions in order. Empty ones are removed."""
        self._waiting: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._last_start: dict[str, int] = {}
        self._starts = 0

    def __len__(self) -> int:
        return len(self._calls)

    def running(self, tenant: str) -> int:
        """Calls of the tenant that have started and not ended."""
        return self._running[tenant]

    def waiting(self, tenant: str) -> int:
        """Calls of the tenant in the queue."""
        return self._waiting[tenant]

    def started(self, tenant: str) -> None:
        """Counts a call that starts (``next`` does it for those it returns)."""
        self._running[tenant] += 1
        self._starts += 1
        self._last_start[tenant] = self._starts

    def ended(self, tenant: str) -> None:
        """Counts a call that had started as ended."""
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]

    def add(self, call: Waiting) -> Waiting | None:
        """Lets a call wait. Returns the call that has to go for it, perhaps itself; None while there is room."""
        displaced = None
        if len(self._calls) >= self._limit:
            displaced = self._to_displace(call)
            if displaced is call:
                return call
            self.remove(displaced.key)
        self._calls[call.key] = call
        self._waiting[call.tenant] += 1
        lane = self._lanes.setdefault(call.tenant, {}).setdefault(call.lane, [])
        bisect.insort(lane, (call.service_ms, call.key))
        return displaced

    def _to_displace(self, call: Waiting) -> Waiting:
        """Which call a full queue gives up for a newcomer: perhaps the newcomer itself."""
        tenant = max(self._waiting, key=lambda name: (self._waiting[name], name), default=call.tenant)
        if self._waiting[tenant] <= self._waiting[call.tenant] + 1:
            tenant = call.tenant
        lasts = [positions[-1] for positions in self._lanes.get(tenant, {}).values()]
        if tenant == call.tenant:
            lasts.append((call.service_ms, call.key))
        return self._calls.get(max(lasts)[1], call)

    def remove(self, key: int) -> None:
        """Takes a call out, however it left; unknown ones are ignored."""
        call = self._calls.pop(key, None)
        if call is None:
            return
        lanes = self._lanes[call.tenant]
        lane = lanes[call.lane]
        del lane[bisect.bisect_left(lane, (call.service_ms, call.key))]
        if not lane:
            del lanes[call.lane]
        if not lanes:
            del self._lanes[call.tenant]
        self._waiting[call.tenant] -= 1
        if not self._waiting[call.tenant]:
            del self._waiting[call.tenant]

    def next(self, *, has_room: Callable[[Hashable], bool], bound: Callable[[str], int | None]) -> Waiting | None:
        """The call that starts now, taken out of the queue and counted as running; None if none can.

        ``has_room``: whether an engine of the lane takes one more; ``bound``: calls that a tenant may run.
        """
        for tenant in sorted(self._lanes, key=lambda name: (self._running[name], self._last_start.get(name, 0), name)):
            most = bound(tenant)
            if most is not None and self._running[tenant] >= most:
                continue
            able = [positions[0] for lane, positions in self._lanes[tenant].items() if has_room(lane)]
            if able:
                call = self._calls[min(able)[1]]
                self.remove(call.key)
                self.started(tenant)
                return call
        return None
