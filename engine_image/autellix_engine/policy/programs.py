"""What an engine knows about programs: their figures, how those merge, and when a program is forgotten."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Program:
    """The figures of one program. All durations are milliseconds and never shrink.

    **Service.** A request brings the service its program had received anywhere, as far as the sender knew. This
    engine has its own counter, which the sender knew only up to some earlier point. Neither includes the other, so
    neither the larger nor the sum is right. But what a request brought, less our own counter at that moment, is
    service received elsewhere and not counted here: a lower bound of it that is exact once the sender has seen all
    our records. So ``service = own + elsewhere``, where ``elsewhere`` is the largest such difference seen. It counts
    nothing twice, sees our own newest service at once, repeats change nothing, and the order of merges between two
    ends of calls does not matter.

    **Path and wait** are absolute: the larger of what was brought and what is known here.
    """

    id: str
    elsewhere_ms: float = 0.0
    """Service on other engines and on earlier incarnations of this one."""
    own_ms: float = 0.0
    """Service of the calls that ended on this incarnation."""
    calls: int = 0
    """Calls that ended on this incarnation."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    path_ms: float = 0.0
    """Service along the longest path of calls. One scalar that every new call inherits, as in the paper: it needs no
    knowledge of what depends on what, never misses the longest path, and may exceed it."""
    wait_ms: float = 0.0
    """Longest accumulated wait along a path of calls."""
    active: int = 0
    """Calls that are here and have not ended."""
    idle_since: float = 0.0
    """When the last call ended; meaningful while ``active`` is 0."""
    forget: bool = False
    """Goes with its last call instead of staying in the table."""

    @property
    def service_ms(self) -> float:
        """Service of all the program's ended calls, here and elsewhere."""
        return self.own_ms + self.elsewhere_ms

    def merge(self, *, service_ms: float, path_ms: float, wait_ms: float) -> None:
        """Takes in the figures that a request brought."""
        self.elsewhere_ms = max(self.elsewhere_ms, service_ms - self.own_ms)
        self._lengthen(path_ms, wait_ms)

    def account(
        self, *, service_ms: float, path_ms: float, wait_ms: float, prompt_tokens: int, generated_tokens: int
    ) -> None:
        """One of its calls has ended here: what it used, and the path and wait that end with it."""
        self.own_ms += service_ms
        self._lengthen(path_ms, wait_ms)
        self.calls += 1
        self.prompt_tokens += prompt_tokens
        self.generated_tokens += generated_tokens

    def _lengthen(self, path_ms: float, wait_ms: float) -> None:
        if path_ms > self.path_ms:
            self.path_ms = path_ms
        if wait_ms > self.wait_ms:
            self.wait_ms = wait_ms


class ProgramTable:
    """The programs of one engine, bounded in time and number.

    A program with calls in the engine is never forgotten. One without is forgotten after ``idle_ms``; if the table
    is full, the one idle for longest goes first, however short that is. If it comes back, its requests bring its
    history; its counter on this engine starts anew, so that until it passes its former value its reported totals lag.
    """

    def __init__(
        self, *, idle_ms: float, limit: int, finished: Callable[[Program], None] = lambda program: None
    ) -> None:
        """``finished`` is told of every program that is over: it was ended, it expired, or its only call ended."""
        self._idle_ms = idle_ms
        self._finished = finished
        self._limit = limit
        self._active: dict[str, Program] = {}
        self._idle: OrderedDict[str, Program] = OrderedDict()  # in order of ``idle_since``
        self.expired = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._active) + len(self._idle)

    @property
    def runnable(self) -> int:
        """Number of programs with calls that run or wait."""
        return len(self._active)

    def active(self) -> Iterator[Program]:
        """Programs with calls in the engine."""
        return iter(self._active.values())

    def get(self, program_id: str) -> Program | None:
        """The program, if it is known."""
        return self._active.get(program_id) or self._idle.get(program_id)

    def enter(self, program_id: str) -> Program:
        """The program, made if unknown, with one more active call."""
        program = self._active.get(program_id)
        if program is None:
            program = self._idle.pop(program_id, None)
            if program is None:
                self._evict(room_for=1)
                program = Program(program_id)
            self._active[program_id] = program
        program.active += 1
        return program

    def leave(self, program: Program, now: float) -> None:
        """One of the program's calls has ended."""
        program.active -= 1
        if program.active == 0:
            del self._active[program.id]
            if program.forget:
                self._finished(program)
            else:
                program.idle_since = now
                self._idle[program.id] = program
                self._evict(room_for=0)

    def end(self, program_id: str) -> None:
        """The program is over: it goes at once, or with the last of its calls that are still here."""
        if (idle := self._idle.pop(program_id, None)) is not None:
            self._finished(idle)
        elif (active := self._active.get(program_id)) is not None:
            active.forget = True

    def expire(self, now: float) -> None:
        """Forgets what has been idle for too long."""
        while self._idle and now - next(iter(self._idle.values())).idle_since >= self._idle_ms:
            _, program = self._idle.popitem(last=False)
            self._finished(program)
            self.expired += 1

    def check_integrity(self) -> None:
        """Raises AssertionError if the table contradicts itself."""
        assert not self._active.keys() & self._idle.keys()
        assert all(p.active > 0 for p in self._active.values())
        assert all(p.active == 0 and not p.forget for p in self._idle.values())
        since = [p.idle_since for p in self._idle.values()]
        assert since == sorted(since)
        assert len(self) <= max(self._limit, len(self._active))

    def _evict(self, *, room_for: int) -> None:
        while self._idle and len(self) + room_for > self._limit:
            self._idle.popitem(last=False)
            self.evicted += 1
