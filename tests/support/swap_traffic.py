"""Traffic for an engine that swaps: long calls that short ones preempt at random, and programs that come back."""

import random
from collections.abc import Sequence

from autellix_wire.context import ProgramContext
from support.swap_engine import SwapEngineBench, prompt

LONG_SERVICE_MS = 9_000_000.0
"""Service of programs that give way to fresh ones."""


class Storm:
    """Long calls run all the time; short ones of fresh programs arrive at random and preempt them. Some are aborted.

    Args:
        long_calls: how many different ones there are; each is compared with an uninterrupted run of its own.
    """

    def __init__(self, engine: SwapEngineBench, seed: int, *, long_calls: int = 3, abort_share: float = 0.1) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._abort_share = abort_share
        self._shapes = [(f"long {i}", self._random.randint(1_250, 1_400), 120) for i in range(long_calls)]
        self._alone = {name: engine.alone(name, prompt(name, length), output) for name, length, output in self._shapes}
        self._numbers = 0
        self._running: dict[str, str] = {}
        self.compared = 0
        """Long calls that ended as their uninterrupted run did."""
        engine.forget_everything()

    def run(self, preemptions: int) -> None:
        """Goes on until there were so many preemptions; then everything runs to its end."""
        counts = self._engine.scheduler.core.counts
        until = counts["preemptions_policy"] + preemptions
        while counts["preemptions_policy"] < until:
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
            assert self._engine.outputs[request] == self._alone[self._running.pop(request)], request
            self.compared += 1


def visits(engine: SwapEngineBench, names: Sequence[str], *, rounds: int, first: int, more: int, output: int) -> None:
    """Programs come back in turn, each time with all that was said before and ``more`` new tokens."""
    contexts = {name: prompt(name, first) for name in names}
    for turn in range(rounds):
        for name in names:
            request = f"{name} {turn}"
            context = ProgramContext(program=name, call=request)
            engine.add(request, contexts[name], output, context)
            engine.run()
            contexts[name] += engine.outputs[request] + prompt(f"{request} more", more)
