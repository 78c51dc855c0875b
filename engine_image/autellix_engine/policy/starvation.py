"""Which waiting call starves next.

A waiting call starves once ``(W + w) / (max(floor, S) + s) >= beta``, with W and S the wait and service that its
program passes on, and w and s its own since its last promotion. While it waits only w changes, and it grows with
the clock. Solved for the time, with w counted from ``since``:

    time = (since - w + beta * s)  +  (beta * max(floor, S) - W)
           '------ the call ----'     '----- the program -----'

So the calls of a program starve in an order that the program's figures do not change, and a program's first time
is all that has to be kept in order among programs. A change to a call or to a program costs a logarithm.
"""

from autellix_engine.policy.agenda import Agenda
from autellix_engine.policy.calls import Call
from autellix_engine.policy.policies import Policy
from autellix_engine.policy.programs import Program


class StarvationWatch:
    """The waiting calls that could starve, by the time at which they will."""

    def __init__(self, policy: Policy, *, ratio: float, floor_ms: float) -> None:
        self._policy = policy
        self._ratio = ratio
        self._floor_ms = floor_ms
        self._programs: Agenda[Program] = Agenda()
        # Nearly every program has one call that waits, and needs no order among its calls.
        self._calls: dict[Program, Call | Agenda[Call]] = {}

    def watch(self, call: Call) -> None:
        """Begins to watch a waiting call, or takes note that its counters changed."""
        program = call.program
        entry = self._calls.get(program)
        if entry is None or entry is call:
            self._calls[program] = call
            self._place(program, self._offset(call))
            return
        if isinstance(entry, Call):
            other, entry = entry, Agenda()
            entry.set(other, self._offset(other))
            self._calls[program] = entry
        entry.set(call, self._offset(call))
        self._place(program, _first(entry)[0])

    def forget(self, call: Call) -> None:
        """Stops watching the call, if it is watched."""
        program = call.program
        entry = self._calls.get(program)
        if isinstance(entry, Agenda):
            if not entry.discard(call):
                return
            if entry:
                self._place(program, _first(entry)[0])
                return
        elif entry is not call:
            return
        del self._calls[program]
        self._programs.discard(program)

    def refresh(self, program: Program) -> None:
        """Takes note that the program's figures changed."""
        entry = self._calls.get(program)
        if isinstance(entry, Agenda):
            self._place(program, _first(entry)[0])
        elif entry is not None:
            self._place(program, self._offset(entry))

    def next(self) -> tuple[float, Call] | None:
        """The time at which the first call starves, and that call; None if no call is watched."""
        soonest = self._programs.first()
        if soonest is None:
            return None
        time, program = soonest
        entry = self._calls[program]
        return time, _first(entry)[1] if isinstance(entry, Agenda) else entry

    def _offset(self, call: Call) -> float:
        """The call's part of its time. Counting its wait up to now does not change it."""
        assert call.waiting_since is not None
        return call.waiting_since - call.wait + self._ratio * call.service

    def _place(self, program: Program, offset: float) -> None:
        inherited = self._ratio * max(self._floor_ms, self._policy.service_ms(program)) - self._policy.wait_ms(program)
        self._programs.set(program, offset + inherited)

    def ratio(self, call: Call, now: float) -> float:
        """The call's ratio of wait to service, with all of its wait though it may have been promoted."""
        pending = now - call.waiting_since if call.waiting_since is not None else 0.0
        served = max(self._floor_ms, self._policy.service_ms(call.program)) + call.total_service
        return (self._policy.wait_ms(call.program) + call.total_wait + pending) / served

    def __len__(self) -> int:
        return sum(len(entry) if isinstance(entry, Agenda) else 1 for entry in self._calls.values())

    def __contains__(self, call: Call) -> bool:
        entry = self._calls.get(call.program)
        return entry is call or (isinstance(entry, Agenda) and call in entry)


def _first(calls: Agenda[Call]) -> tuple[float, Call]:
    first = calls.first()
    assert first is not None, "an empty agenda is not kept"
    return first
