"""Traffic for an engine that swaps: long calls that short ones preempt at random, and programs that come back."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autellix_wire.context import ProgramContext
from support.swap_engine import SwapEngineBench, prompt

LONG_SERVICE_MS = 9_000_000.0
"""Service of programs that give way to fresh ones."""

#: Preemptions between two lines about how far a storm is.
TOLD_EVERY = 25


class Storm:
    """Long calls run all the time; short ones of fresh programs arrive at random and preempt them. Some are aborted.

    Each long call that ends must have the tokens of an uninterrupted run, and its record must say exactly how many of
    its tokens were given to the model twice.

    Args:
        long_calls: how many different ones there are; each is compared with an uninterrupted run of its own.
    """

    def __init__(self, engine: SwapEngineBench, seed: int, *, long_calls: int = 3, abort_share: float = 0.1) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._abort_share = abort_share
        self._shapes = [(f"long {i}", self._random.randint(1_250, 1_400), 120) for i in range(long_calls)]
        self._needed = {name: length + output - 1 for name, length, output in self._shapes}
        self._alone = {name: engine.alone(name, prompt(name, length), output) for name, length, output in self._shapes}
        self._numbers = 0
        self._running: dict[str, str] = {}
        self.compared = 0
        """Long calls that ended as their uninterrupted run did."""
        engine.forget_everything()

    def run(self, preemptions: int, tell: Callable[[str], object] = lambda line: None) -> None:
        """Goes on until there were so many preemptions; then everything runs to its end. ``tell``: gets a line about
        how far it is now and then."""
        counts = self._engine.scheduler.core.counts
        before, told = counts["preemptions_policy"], 0
        while (so_far := counts["preemptions_policy"] - before) < preemptions:
            if so_far >= told + TOLD_EVERY:
                told = so_far
                tell(f"{so_far} of {preemptions} preemptions, {self.compared} calls compared")
            while len(self._running) < 3:
                self._send_long()
            for _ in range(self._random.randint(0, 2)):
                self._send_short()
            for _ in range(self._random.randint(1, 12)):
                self._engine.step()
            self._compare()
        self._engine.run()
        self._compare()
        assert not self._running

    def _send_long(self) -> None:
        self._numbers += 1
        name, length, output = self._random.choice(self._shapes)
        request = f"{self._numbers}: {name}"
        context = ProgramContext(program=f"program of {request}", call=request, service_ms=LONG_SERVICE_MS)
        self._engine.add(request, prompt(name, length), output, context)
        self._running[request] = name

    def _send_short(self) -> None:
        self._numbers += 1
        request = f"{self._numbers}: short"
        context = ProgramContext(program=f"program of {request}", call=request)
        length = self._random.choice((20, 100, 400, 900))
        self._engine.add(request, prompt(request, length), self._random.randint(1, 8), context)
        if self._random.random() < self._abort_share:
            for _ in range(self._random.randint(0, 3)):
                self._engine.step()
            self._engine.abort(request)
        if self._random.random() < self._abort_share / 2 and self._running:
            victim = self._random.choice(sorted(self._running))
            self._engine.abort(victim)
            del self._running[victim]

    def _compare(self) -> None:
        for request in [each for each in self._running if each in self._engine.finish_reasons]:
            name = self._running.pop(request)
            assert self._engine.outputs[request] == self._alone[name], request
            record, needed = self._engine.record(request), self._needed[name]
            again = self._engine.scheduled[request] - (needed - record.cached_tokens)
            assert again == record.recomputed_tokens, request
            self.compared += 1


@dataclass(frozen=True)
class Visit:
    """A call of a program that came back. ``known``: tokens that the program's call before had computed."""

    request: str
    known: int


def visits(
    engine: SwapEngineBench, names: Sequence[str], *, rounds: int, first: int, more: int, output: int
) -> list[Visit]:
    """Programs come back in turn, one a second by the host tier's clock, each time with all that was said before and
    ``more`` new tokens. Returns all calls but the first of each program."""
    contexts = {name: prompt(name, first) for name in names}
    made: list[Visit] = []
    for turn in range(rounds):
        for name in names:
            request = f"{name} {turn}"
            context = ProgramContext(program=name, call=request)
            if turn:
                made.append(Visit(request, len(contexts[name]) - more - 1))  # the last token was not computed
            engine.add(request, contexts[name], output, context)
            engine.run()
            engine.clock.seconds += 1.0
            contexts[name] += engine.outputs[request] + prompt(f"{request} more", more)
    return made


def share_of_known_computed_again(engine: SwapEngineBench, made: Sequence[Visit]) -> float:
    """Of what programs had computed when they came back. Counts every token, also those of a block that was not full
    and so was never stored."""
    known = sum(visit.known for visit in made)
    found = sum(min(visit.known, engine.record(visit.request).cached_tokens) for visit in made)
    return 1 - found / known
