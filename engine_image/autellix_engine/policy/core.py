"""The decision core: Algorithm 1 of Autellix (arXiv 2502.13965, section 4.2) over the calls of one engine.

Time and memory belong to the caller: it passes the time in (milliseconds on any clock that never goes back), says
what ran and for how long, and is asked whether a call fits. Each line of the algorithm has one place here:

==============  ======================================================================
arrival         ``arrive``: the level of the program's service, behind those already there
finished        ``end``: the program's service grows, by ``Program.account``
quantum used    ``charge``, ``_demote``: to the next lower queue
starving        ``_promote_starving``: to the best queue, with the call's counters reset
batch           ``plan``: in queue order while they fit (``fill_batch``)
==============  ======================================================================

Points that the paper leaves open are settled so:

- Service is executor time: a call is charged the whole duration of every step that it takes part in.
- Promotion resets the counters of the starvation ratio only; accounting has counters of its own.
- Promoted calls stand before the others of the best level, in order of promotion. So how long a promoted call waits
  depends on the number of promoted calls, not on how many fresh programs arrive.
- A running call gives way only to a call of a strictly better level. Only waiting calls are looked at for starvation:
  the ratio of a running one falls.
- A preempted call keeps its place inside its level.
"""

from collections.abc import Iterable
from typing import Final

from autellix_engine.policy.board import Board
from autellix_engine.policy.bound import BoundWatch
from autellix_engine.policy.calls import Call, CallEnd, CallState
from autellix_engine.policy.levels import level_source
from autellix_engine.policy.plan import Fits, Plan, always_fits, fill_batch
from autellix_engine.policy.policies import POLICIES
from autellix_engine.policy.programs import Program, ProgramTable
from autellix_engine.policy.settings import SchedulingSettings
from autellix_engine.policy.starvation import StarvationWatch
from autellix_engine.policy.view import CoreView

#: Places of promoted calls in the best level lie before all others.
_PROMOTED_FIRST: Final = -(1 << 62)
#: Far more than get a slot in a step, and few enough not to hold it up: a promotion takes some 10 us.
PROMOTIONS_PER_DECISION: Final = 256


class Core(CoreView):
    """Calls, their queues and their programs. Calls are named by a key that is unique in this engine."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self.settings: Final = settings
        self.policy: Final = POLICIES[settings.policy]
        levels = level_source(settings, self.policy)
        watch = StarvationWatch(self.policy, ratio=settings.starvation_ratio, floor_ms=settings.starvation_floor_ms)
        programs = ProgramTable(
            idle_ms=settings.program_idle_seconds * 1000, limit=settings.max_programs, finished=self._program_finished
        )
        super().__init__(Board(len(levels.now.quanta), self.policy, watch), programs, levels, watch)
        self._bound = BoundWatch(
            steps_per_decision=settings.steps_per_decision, max_preemptions_per_step=settings.max_preemptions_per_step
        )

    # ---- Algorithm 1

    def arrive(
        self,
        key: str,
        *,
        now: float,
        program: str | None = None,
        thread: str = "",
        service_ms: float = 0.0,
        path_ms: float = 0.0,
        wait_ms: float = 0.0,
        ready: bool = True,
        gives_way: bool = True,
    ) -> Call:
        """A call arrives with the figures that its program had when it was sent.

        Without a program it is one of its own, forgotten when the call ends. Raises ValueError if the key is taken.
        """
        if key in self._board.calls:
            raise ValueError(f"call {key!r} is already here")
        owner = self._programs.enter(program if program is not None else f"call:{key}")
        owner.forget |= program is None
        owner.merge(service_ms=service_ms, path_ms=path_ms, wait_ms=wait_ms)
        self._watch.refresh(owner)
        # The level i with Q_lo[i] <= service of the program < Q_hi[i], and its quantum.
        levels = self._levels.now
        level = levels.level(self.policy.service_ms(owner))
        min_run = self.settings.min_run_ms
        call = Call(
            key=key,
            program=owner,
            thread=thread,
            path_before=owner.path_ms,
            wait_before=owner.wait_ms,
            level=level,
            quanta=levels.quanta,
            quantum_end=levels.quanta[level],
            order=self._board.next_order(),
            min_run=levels.quanta[0] if min_run is None else min_run,
            ready=ready,
            gives_way=gives_way,
            waiting_since=now if ready else None,
        )
        self._board.calls[key] = call
        self._board.enqueue(call)
        self.counts["arrivals"] += 1
        return call

    def charge(self, keys: Iterable[str], ms: float) -> list[Call]:
        """A step of ``ms`` of executor time ran these calls. Returns those that moved to another level by it.

        A call may have lost its slot meanwhile (then it is charged nevertheless) or have ended (then it is not).
        """
        self._bound.step(ms)
        moved = []
        calls = self._board.calls
        for key in keys:
            call = calls.get(key)
            if call is None:
                continue
            call.total_service += ms
            # Quantum used up: the next lower queue; the last one keeps it.
            if call.total_service >= call.quantum_end:
                self._demote(call)
                moved.append(call)
            elif call.queued and call in self._watch:
                self._watch.watch(call)
        return moved

    def _demote(self, call: Call) -> None:
        level = call.level
        while call.total_service >= call.quantum_end:
            level += 1
            call.quantum_end += call.quanta[level]
            self.counts["demotions"] += 1
        self._board.move(call, level, self._board.next_order(), promoted=False)

    def _promote_starving(self, now: float) -> None:
        """Starving: to Q1, with the call's own wait and service reset (the program's stay, so that its other calls are
        promoted too). The rest of a large crowd follows with the next decisions, in the same order."""
        for _ in range(PROMOTIONS_PER_DECISION):
            starving = self._watch.next()
            if starving is None or starving[0] > now:
                return
            call = starving[1]
            self._settle_wait(call, now)
            call.wait_mark, call.service_mark = call.total_wait, call.total_service
            call.quantum_end = call.total_service + call.quanta[0]
            call.promoted_at, call.promoted_behind = now, self._board.promoted_waiting
            call.promotions += 1
            self.counts["promotions"] += 1
            self._board.move(call, 0, self._board.next_order() + _PROMOTED_FIRST, promoted=True)

    def end(self, key: str, now: float, *, prompt_tokens: int = 0, generated_tokens: int = 0) -> CallEnd:
        """The call is over, however it ended: what it used counts."""
        call = self._board.calls[key]
        self._board.remove(call)
        self._settle_wait(call, now)
        self._leave_promotion(call, now)
        # Finished: the program's service becomes max(service, service0 + model_time). That is the line for its longest
        # path; the sum over its calls is kept beside it.
        program = call.program
        program.account(
            service_ms=call.total_service,
            path_ms=call.path_before + call.total_service,
            wait_ms=call.wait_before + call.total_wait,
            prompt_tokens=prompt_tokens,
            generated_tokens=generated_tokens,
        )
        self._programs.leave(program, now)
        self._watch.refresh(program)
        if not self.policy.by_program:
            self._finished(call.total_service)
        self.counts["ends"] += 1
        return CallEnd(
            program=program.id,
            thread=call.thread,
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

    def plan(self, now: float, free_slots: int, fits: Fits = always_fits) -> Plan:
        """Which waiting calls get a slot now, and which running calls give way to them.

        Promotes starving calls, forgets idle programs, and changes nothing else.
        """
        self._bound.slots(len(self._board.running) + free_slots - self._board.unyielding)
        self._promote_starving(now)
        self._programs.expire(now)
        return fill_batch(
            self._board.waiting,
            reversed(self._board.running),
            free_slots=free_slots,
            most_victims=self.settings.max_preemptions_per_step,
            fits=fits,
        )

    # ---- what the caller did

    def start(self, key: str, now: float) -> None:
        """A waiting call gets a slot."""
        call = self._board.calls[key]
        self._settle_wait(call, now)
        self._leave_promotion(call, now)
        self._bound.turn(call)
        self._board.run(call)
        call.ready, call.waiting_since, call.turn_mark = True, None, call.total_service

    def preempt(self, key: str, now: float, *, for_memory: bool = False) -> None:
        """A running call loses its slot, by a plan or because memory ran out. It keeps its place in its level."""
        self._stop(self._board.calls[key], now, ready=True)
        self._board.calls[key].preemptions += 1
        self.counts["preemptions_memory" if for_memory else "preemptions_policy"] += 1

    def pause(self, key: str, now: float) -> None:
        """A running call gives its slot up because it waits for something else; see ``set_ready``."""
        self._stop(self._board.calls[key], now, ready=False)

    def set_ready(self, key: str, ready: bool, now: float) -> None:
        """A waiting call begins to be able to run, or ceases to be."""
        call = self._board.calls[key]
        if call.state is CallState.WAITING and call.ready != ready:
            queued = call.queued
            if queued:
                self._board.dequeue(call)
            self._settle_wait(call, now)
            call.ready = ready
            call.waiting_since = now if ready else None
            call.promoted_at = None  # the bound is one on waits for a slot
            if queued:
                self._board.enqueue(call)

    def take(self, key: str) -> None:
        """Takes a waiting call out of its queue for a moment, while its admission is tried."""
        self._board.dequeue(self._board.calls[key])

    def put_back(self, key: str) -> None:
        """Returns a call that was taken to its place."""
        call = self._board.calls[key]
        if not call.queued:
            self._board.enqueue(call)

    def end_program(self, program_id: str) -> None:
        """The program is over: it is forgotten at once, or with the last of its calls that are still here."""
        self._programs.end(program_id)

    # ---- parts of the above

    def _stop(self, call: Call, now: float, *, ready: bool) -> None:
        self._board.stop(call)
        call.ready, call.waiting_since = ready, now if ready else None
        self._board.enqueue(call)

    @staticmethod
    def _settle_wait(call: Call, now: float) -> None:
        if call.waiting_since is not None:
            call.total_wait += now - call.waiting_since
            call.waiting_since = now

    def _leave_promotion(self, call: Call, now: float) -> None:
        """A call gets a slot or ends: if it was promoted for that, was the bound on its wait kept?"""
        if call.promoted_at is not None:
            self.counts["bound_breaches"] += self._bound.is_broken(call, now)
            call.promoted_at = None

    def _program_finished(self, program: Program) -> None:
        if self.policy.by_program:
            self._finished(self.policy.service_ms(program))

    def _finished(self, service_ms: float) -> None:
        if service_ms > 0:  # what was aborted before it ran tells nothing about what programs need
            self._levels.finished(service_ms)
