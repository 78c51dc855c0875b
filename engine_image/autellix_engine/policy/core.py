"""The decision core: Algorithm 1 of Autellix (arXiv 2502.13965, section 4.2) over the calls of one engine.

Time and memory belong to the caller: it passes the time in (milliseconds on any clock that never goes back), says
what ran and for how long, and is asked whether a call fits. Where a line of the algorithm is meant, a comment names it.

Points that the paper leaves open are settled so:

- Service is executor time: a call is charged the whole duration of every step that it takes part in.
- Promotion resets the counters of the starvation ratio only; accounting has counters of its own.
- Promoted calls stand before the others of the best level, in order of promotion. So how long a promoted call waits
  depends on the number of promoted calls, not on how many fresh programs arrive.
- A running call gives way only to a call of a strictly better level. Only waiting calls are looked at for starvation:
  the ratio of a running one falls.
- A preempted call keeps its place inside its level.
"""

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autellix_engine.policy.calls import Call, CallEnd, CallState
from autellix_engine.policy.policies import POLICIES
from autellix_engine.policy.programs import ProgramTable
from autellix_engine.policy.queues import LevelQueues
from autellix_engine.policy.settings import SchedulingSettings
from autellix_engine.policy.starvation import StarvationWatch

#: Places of promoted calls in the best level lie before all others.
_PROMOTED_FIRST: Final = -(1 << 62)
#: Far more than get a slot in a step, and few enough not to hold it up: a promotion takes some 10 us.
PROMOTIONS_PER_DECISION: Final = 256

#: Whether a call fits once these running calls have given way.
Fits = Callable[[Call, Sequence[Call]], bool]


def always_fits(call: Call, victims: Sequence[Call]) -> bool:
    """For callers to whom only slots are scarce."""
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision. The caller carries it out by ``preempt`` and ``start``, as far as it can."""

    admissions: tuple[Call, ...]
    """Waiting calls that get a slot, in this order."""
    victims: tuple[Call, ...]
    """Running calls that give way to them."""


class Core:
    """Calls, their queues and their programs. Calls are named by a key that is unique in this engine."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self.settings: Final = settings
        self.policy: Final = POLICIES[settings.policy]
        self._bounds = settings.queue_bounds_ms if self.policy.multilevel else ()
        self._quanta = settings.quanta if self.policy.multilevel else (float("inf"),)
        self._calls: dict[str, Call] = {}
        self._waiting = LevelQueues(self.levels)
        self._running = LevelQueues(self.levels)
        self._starvation = StarvationWatch(
            self.policy, ratio=settings.starvation_ratio, floor_ms=settings.starvation_floor_ms
        )
        self._programs = ProgramTable(idle_ms=settings.program_idle_seconds * 1000, limit=settings.max_programs)
        self._last_order = 0
        self.counts: Final[Counter[str]] = Counter()
        """Since the start: arrivals, ends, demotions, promotions, preemptions_policy, preemptions_memory."""

    # ---- what can be seen

    @property
    def levels(self) -> int:
        """Number of levels, K."""
        return len(self._quanta)

    @property
    def programs(self) -> ProgramTable:
        return self._programs

    def __contains__(self, key: str) -> bool:
        return key in self._calls

    def __len__(self) -> int:
        return len(self._calls)

    def call(self, key: str) -> Call:
        """Raises KeyError if there is no such call."""
        return self._calls[key]

    def waiting(self) -> Iterator[Call]:
        """The queued calls in the order in which they are served, those that are not ready included."""
        return iter(self._waiting)

    def running(self) -> Iterator[Call]:
        """The running calls in queue order: those that would give way come last."""
        return iter(self._running)

    def waiting_by_level(self) -> tuple[int, ...]:
        return self._waiting.sizes()

    def running_by_level(self) -> tuple[int, ...]:
        return self._running.sizes()

    # ---- the life of a call

    def arrive(
        self,
        key: str,
        *,
        now: float,
        program: str | None = None,
        service_ms: float = 0.0,
        path_ms: float = 0.0,
        wait_ms: float = 0.0,
        ready: bool = True,
        gives_way: bool = True,
    ) -> Call:
        """A call arrives with the figures that its program had when it was sent.

        Without a program it is one of its own, forgotten when the call ends. Raises ValueError if the key is taken.
        """
        if key in self._calls:
            raise ValueError(f"call {key!r} is already here")
        owner = self._programs.enter(program if program is not None else f"call:{key}")
        owner.forget |= program is None
        owner.merge(service_ms=service_ms, path_ms=path_ms, wait_ms=wait_ms)
        self._starvation.refresh(owner)
        # Algorithm 1, arrival: the level i with Q_lo[i] <= service of the program < Q_hi[i].
        call = Call(
            key=key,
            program=owner,
            path_before=owner.path_ms,
            wait_before=owner.wait_ms,
            level=bisect_right(self._bounds, self.policy.service_ms(owner)),
            order=self._next_order(),
            ready=ready,
            gives_way=gives_way,
            waiting_since=now if ready else None,
        )
        self._calls[key] = call
        self._enqueue(call)
        self.counts["arrivals"] += 1
        return call

    def set_ready(self, key: str, ready: bool, now: float) -> None:
        """A waiting call begins to be able to run, or ceases to be."""
        call = self._calls[key]
        if call.state is CallState.WAITING and call.ready != ready:
            queued = call.queued
            if queued:
                self._dequeue(call)
            self._settle_wait(call, now)
            call.ready = ready
            call.waiting_since = now if ready else None
            if queued:
                self._enqueue(call)

    def take(self, key: str) -> None:
        """Takes a waiting call out of its queue for a moment, while its admission is tried."""
        self._dequeue(self._calls[key])

    def put_back(self, key: str) -> None:
        """Returns a call that was taken to its place."""
        call = self._calls[key]
        if not call.queued:
            self._enqueue(call)

    def start(self, key: str, now: float) -> None:
        """A waiting call gets a slot."""
        call = self._calls[key]
        if call.queued:
            self._dequeue(call)
        self._settle_wait(call, now)
        call.state, call.ready, call.waiting_since, call.turn_service = CallState.RUNNING, True, None, 0.0
        self._running.add(call)

    def preempt(self, key: str, now: float, *, for_memory: bool = False) -> None:
        """A running call loses its slot, by a plan or because memory ran out. It keeps its place in its level."""
        self._stop(self._calls[key], now, ready=True)
        self._calls[key].preemptions += 1
        self.counts["preemptions_memory" if for_memory else "preemptions_policy"] += 1

    def pause(self, key: str, now: float) -> None:
        """A running call gives its slot up because it waits for something else; see ``set_ready``."""
        self._stop(self._calls[key], now, ready=False)

    def charge(self, keys: Iterable[str], ms: float) -> list[Call]:
        """A step of ``ms`` of executor time ran these calls. Returns those that moved to another level by it.

        A call may have lost its slot meanwhile (then it is charged nevertheless) or have ended (then it is not).
        """
        moved = []
        for key in keys:
            call = self._calls.get(key)
            if call is None:
                continue
            call.service += ms
            call.total_service += ms
            call.quantum_used += ms
            call.turn_service += ms
            # Algorithm 1, quantum used up: the next lower queue; the last one keeps it.
            if call.quantum_used >= self._quanta[call.level]:
                self._demote(call)
                moved.append(call)
            elif call.queued and call in self._starvation:
                self._starvation.watch(call)
        return moved

    def end(self, key: str, now: float, *, prompt_tokens: int = 0, generated_tokens: int = 0) -> CallEnd:
        """The call is over, however it ended: what it used counts.

        Algorithm 1, finished: the program's service becomes max(service, service0 + model_time). That is the line
        for its longest path; the sum over its calls is kept beside it.
        """
        call = self._calls.pop(key)
        if call.queued:
            self._dequeue(call)
        elif call.state is CallState.RUNNING:
            self._running.remove(call)
        self._settle_wait(call, now)
        program = call.program
        program.own_ms += call.total_service
        program.path_ms = max(program.path_ms, call.path_before + call.total_service)
        program.wait_ms = max(program.wait_ms, call.wait_before + call.total_wait)
        program.calls += 1
        program.prompt_tokens += prompt_tokens
        program.generated_tokens += generated_tokens
        self._programs.leave(program, now)
        self._starvation.refresh(program)
        self.counts["ends"] += 1
        return CallEnd(
            program=program.id,
            service_ms=call.total_service,
            wait_ms=call.total_wait,
            level=call.level,
            preemptions=call.preemptions,
            promotions=call.promotions,
            path_ms=program.path_ms,
            program_wait_ms=program.wait_ms,
            own_service_ms=program.own_ms,
            own_calls=program.calls,
            own_prompt_tokens=program.prompt_tokens,
            own_generated_tokens=program.generated_tokens,
        )

    # ---- the decision

    def plan(self, now: float, free_slots: int, fits: Fits = always_fits) -> Plan:
        """Which waiting calls get a slot now, and which running calls give way to them.

        Promotes starving calls, forgets idle programs, and changes nothing else.

        Algorithm 1, batch: calls are taken in queue order while they fit; the first that does not fit ends it. A call
        for which there is no room may have it from running calls of a strictly worse level, worst and latest first,
        as long as they are not in their minimum run and the step's limit on preemptions is not reached; if that is
        not enough for it, nobody gives way to it.
        """
        self._promote_starving(now)
        self._programs.expire(now)
        admissions: list[Call] = []
        victims: list[Call] = []
        candidates = itertools.islice(
            (call for call in reversed(self._running) if not self._keeps_slot(call)),
            self.settings.max_preemptions_per_step,
        )
        for call in self._waiting:
            if not call.ready:
                continue
            leaving: list[Call] = []
            while free_slots + len(leaving) <= 0 or not fits(call, [*victims, *leaving]):
                candidate = next(candidates, None)
                if candidate is None or candidate.level <= call.level:
                    return Plan(tuple(admissions), tuple(victims))
                leaving.append(candidate)
            victims += leaving
            free_slots += len(leaving) - 1
            admissions.append(call)
        return Plan(tuple(admissions), tuple(victims))

    def _promote_starving(self, now: float) -> None:
        """Algorithm 1, starving: to Q1, with the call's own wait and service reset (the program's stay, so that its
        other calls are promoted too). The rest of a large crowd follows with the next decisions, in the same order."""
        for _ in range(PROMOTIONS_PER_DECISION):
            starving = self._starvation.next()
            if starving is None or starving[0] > now:
                return
            call = starving[1]
            self._dequeue(call)
            self._settle_wait(call, now)
            call.wait = call.service = call.quantum_used = 0.0
            call.level, call.promoted = 0, True
            call.order = self._next_order() + _PROMOTED_FIRST
            call.promotions += 1
            self.counts["promotions"] += 1
            self._enqueue(call)

    def _keeps_slot(self, call: Call) -> bool:
        return not call.gives_way or (call.preemptions > 0 and call.turn_service < self.settings.min_run_ms)

    # ---- parts of the above

    def _demote(self, call: Call) -> None:
        running, queued = call.state is CallState.RUNNING, call.queued
        if running:
            self._running.remove(call)
        elif queued:
            self._dequeue(call)
        while call.quantum_used >= self._quanta[call.level]:
            call.quantum_used -= self._quanta[call.level]
            call.level += 1
            self.counts["demotions"] += 1
        call.promoted = False
        call.order = self._next_order()
        if running:
            self._running.add(call)
        elif queued:
            self._enqueue(call)

    def _stop(self, call: Call, now: float, *, ready: bool) -> None:
        self._running.remove(call)
        call.state, call.ready, call.waiting_since = CallState.WAITING, ready, now if ready else None
        self._enqueue(call)

    def _enqueue(self, call: Call) -> None:
        self._waiting.add(call)
        call.queued = True
        if call.ready and not call.promoted and self.policy.multilevel:
            self._starvation.watch(call)

    def _dequeue(self, call: Call) -> None:
        self._waiting.remove(call)
        call.queued = False
        self._starvation.forget(call)

    @staticmethod
    def _settle_wait(call: Call, now: float) -> None:
        if call.waiting_since is not None:
            waited = now - call.waiting_since
            call.wait += waited
            call.total_wait += waited
            call.waiting_since = now

    def _next_order(self) -> int:
        self._last_order += 1
        return self._last_order

    def end_program(self, program_id: str) -> None:
        """The program is over: it is forgotten at once, or with the last of its calls that are still here."""
        self._programs.end(program_id)

    # ---- for tests and debugging

    def check_integrity(self) -> None:
        """Raises AssertionError if the state contradicts itself. Looks at everything: for tests."""
        self._waiting.check_integrity()
        self._running.check_integrity()
        self._programs.check_integrity()
        active: Counter[str] = Counter()
        for call in self._calls.values():
            active[call.program.id] += 1
            running = call.state is CallState.RUNNING
            assert (call in self._running) == running
            assert (call in self._waiting) == call.queued
            assert not (running and call.queued)
            assert (call.waiting_since is not None) == (call.ready and not running)
            watched = self.policy.multilevel and call.queued and call.ready and not call.promoted
            assert (call in self._starvation) == watched
            assert 0 <= call.quantum_used < self._quanta[call.level]
            assert 0 <= call.wait <= call.total_wait
            assert 0 <= call.service <= call.total_service
            assert self._programs.get(call.program.id) is call.program
        assert len(self._waiting) == sum(c.queued for c in self._calls.values())
        assert len(self._running) == sum(c.state is CallState.RUNNING for c in self._calls.values())
        assert {p.id: p.active for p in self._programs.active()} == dict(active)
