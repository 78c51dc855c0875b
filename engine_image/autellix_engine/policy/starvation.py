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
        self._calls: dict[Program, Agenda[Call]] = {}

    def watch(self, call: Call) -> None:
        """Begins to watch a waiting call, or takes note that its counters changed."""
        assert call.waiting_since is not None
        program = call.program
        calls = self._calls.get(program)
        if calls is None:
            calls = self._calls[program] = Agenda()
        calls.set(call, call.waiting_since - call.wait + self._ratio * call.service)
        self._place(program, calls)

    def forget(self, call: Call) -> None:
        """Stops watching the call, if it is watched."""
        calls = self._calls.get(call.program)
        if calls is not None and calls.discard(call):
            if calls:
                self._place(call.program, calls)
            else:
                del self._calls[call.program]
                self._programs.discard(call.program)

    def refresh(self, program: Program) -> None:
        """Takes note that the program's figures changed."""
        calls = self._calls.get(program)
        if calls is not None:
            self._place(program, calls)

    def _place(self, program: Program, calls: Agenda[Call]) -> None:
        first = calls.first()
        assert first is not None
        inherited = self._ratio * max(self._floor_ms, self._policy.service_ms(program)) - self._policy.wait_ms(program)
        self._programs.set(program, first[0] + inherited)

    def next(self) -> tuple[float, Call] | None:
        """The time at which the first call starves, and that call; None if no call is watched."""
        soonest = self._programs.first()
        if soonest is None:
            return None
        time, program = soonest
        first = self._calls[program].first()
        assert first is not None
        return time, first[1]

    def ratio(self, call: Call, now: float) -> float:
        """The call's ratio of wait to service, with all of its wait though it may have been promoted."""
        pending = now - call.waiting_since if call.waiting_since is not None else 0.0
        served = max(self._floor_ms, self._policy.service_ms(call.program)) + call.total_service
        return (self._policy.wait_ms(call.program) + call.total_wait + pending) / served

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    def __contains__(self, call: Call) -> bool:
        calls = self._calls.get(call.program)
        return calls is not None and call in calls
