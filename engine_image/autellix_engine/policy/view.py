"""What can be seen of the decision core. Nothing here changes anything."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from autellix_engine.policy.board import Board
from autellix_engine.policy.calls import Call
from autellix_engine.policy.levels import LevelSource
from autellix_engine.policy.programs import ProgramTable
from autellix_engine.policy.starvation import StarvationWatch

#: Calls at the head of each level that are looked at for the worst ratio.
_RATIO_CALLS: Final = 16


class CoreView:
    """Calls, queues and programs of a core, for its caller, for people and for tests."""

    def __init__(self, board: Board, programs: ProgramTable, levels: LevelSource, watch: StarvationWatch) -> None:
        self._board = board
        self._programs = programs
        self._levels = levels
        self._watch = watch
        self.counts: Final[Counter[str]] = Counter()
        """Since the start: arrivals, ends, demotions, promotions, preemptions_policy, preemptions_memory,
        bound_breaches."""

    @property
    def levels(self) -> int:
        """Number of levels, K."""
        return len(self._levels.now.quanta)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The bounds of the levels for calls that arrive now, in milliseconds."""
        return self._levels.now.bounds

    @property
    def programs(self) -> ProgramTable:
        return self._programs

    def __contains__(self, key: str) -> bool:
        return key in self._board.calls

    def __len__(self) -> int:
        return len(self._board.calls)

    def call(self, key: str) -> Call:
        """Raises KeyError if there is no such call."""
        return self._board.calls[key]

    def waiting(self) -> Iterator[Call]:
        """The queued calls in the order in which they are served, those that are not ready included."""
        return iter(self._board.waiting)

    def first_waiting(self) -> Call | None:
        """The first of them."""
        return self._board.waiting.first()

    def running(self) -> Iterator[Call]:
        """The running calls in queue order: those that would give way come last."""
        return iter(self._board.running)

    def running_reversed(self) -> Iterator[Call]:
        """The running calls from those that would give way first."""
        return reversed(self._board.running)

    def waiting_by_level(self) -> tuple[int, ...]:
        return self._board.waiting.sizes()

    def running_by_level(self) -> tuple[int, ...]:
        return self._board.running.sizes()

    def worst_ratio(self, now: float) -> float:
        """The largest ratio of wait to service among the waiting calls that have waited for longest.

        These are the first few of each level and the one that starves next: a look at all would take milliseconds.
        """
        ratios = [self._watch.ratio(call, now) for call in self._board.waiting.heads(_RATIO_CALLS) if call.ready]
        if (starving := self._watch.next()) is not None:
            ratios.append(self._watch.ratio(starving[1], now))
        return max(ratios, default=0.0)

    def check_integrity(self) -> None:
        """Raises AssertionError if the state contradicts itself. Looks at everything: for tests."""
        self._board.check_integrity()
        self._programs.check_integrity()
        calls = self._board.calls.values()
        assert all(self._programs.get(call.program.id) is call.program for call in calls)
        by_program = Counter(call.program.id for call in calls)
        assert {p.id: p.active for p in self._programs.active()} == by_program
        assert self._programs.runnable == len(by_program)
