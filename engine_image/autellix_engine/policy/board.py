"""The calls of one engine and where each of them stands: the bookkeeping under the algorithm."""

from collections import Counter
from typing import Final

from autellix_engine.policy.calls import Call, CallState
from autellix_engine.policy.policies import Policy
from autellix_engine.policy.queues import LevelQueues
from autellix_engine.policy.starvation import StarvationWatch


class Board:
    """Every call by its key, the queues of waiting and of running calls, and who could starve.

    A call's level and order change only through ``move``, so that it is never looked for where it no longer is.
    """

    def __init__(self, levels: int, policy: Policy, watch: StarvationWatch) -> None:
        self.calls: Final[dict[str, Call]] = {}
        self.waiting: Final = LevelQueues(levels)
        self.running: Final = LevelQueues(levels)
        self.watch: Final = watch
        self.promoted_waiting = 0
        """Promoted calls in the queue."""
        self.unyielding = 0
        """Running calls that never give way."""
        self._policy = policy
        self._last_order = 0

    def next_order(self) -> int:
        """The place behind everybody else's."""
        self._last_order += 1
        return self._last_order

    def enqueue(self, call: Call) -> None:
        """Puts a waiting call into the queue of its level, at its place."""
        self.waiting.add(call)
        call.queued = True
        self.promoted_waiting += call.promoted
        if call.ready and not call.promoted and self._policy.multilevel:
            self.watch.watch(call)

    def dequeue(self, call: Call) -> None:
        """Takes a waiting call out of the queue."""
        self.waiting.remove(call)
        call.queued = False
        self.promoted_waiting -= call.promoted
        self.watch.forget(call)

    def run(self, call: Call) -> None:
        """A waiting call gets a slot."""
        if call.queued:
            self.dequeue(call)
        call.state = CallState.RUNNING
        self.running.add(call)
        self.unyielding += not call.gives_way

    def stop(self, call: Call) -> None:
        """A running call loses its slot; the caller puts it into the queue."""
        self.running.remove(call)
        self.unyielding -= not call.gives_way
        call.state = CallState.WAITING

    def move(self, call: Call, level: int, order: int, *, promoted: bool) -> None:
        """Gives a call another place, wherever it stands."""
        running, queued = call.state is CallState.RUNNING, call.queued
        if running:
            self.running.remove(call)
        elif queued:
            self.dequeue(call)
        call.level, call.order, call.promoted = level, order, promoted
        if running:
            self.running.add(call)
        elif queued:
            self.enqueue(call)

    def remove(self, call: Call) -> None:
        """The call is over, wherever it stands."""
        del self.calls[call.key]
        if call.queued:
            self.dequeue(call)
        elif call.state is CallState.RUNNING:
            self.running.remove(call)
            self.unyielding -= not call.gives_way

    def check_integrity(self) -> None:
        """Raises AssertionError if the state contradicts itself. Looks at everything: for tests."""
        self.waiting.check_integrity()
        self.running.check_integrity()
        states: Counter[str] = Counter()
        for call in self.calls.values():
            running = call.state is CallState.RUNNING
            states["running"] += running
            states["queued"] += call.queued
            states["unyielding"] += running and not call.gives_way
            states["promoted"] += call.queued and call.promoted
            assert (call in self.running) == running
            assert (call in self.waiting) == call.queued
            assert not (running and call.queued)
            assert (call.waiting_since is not None) == (call.ready and not running)
            watched = self._policy.multilevel and call.queued and call.ready and not call.promoted
            assert (call in self.watch) == watched
            assert call.promoted_at is None or not running
            assert call.total_service < call.quantum_end
            assert 0 <= call.wait <= call.total_wait
            assert 0 <= call.service <= call.total_service
        assert (len(self.running), len(self.waiting)) == (states["running"], states["queued"])
        assert (self.promoted_waiting, self.unyielding) == (states["promoted"], states["unyielding"])
        assert len(self.watch) <= len(self.waiting)
