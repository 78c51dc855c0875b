"""Was a recorded history of pins possible, had each pin happened at one moment? A search after Wing and Gong.

The register is one program's pin. A call ``pin(engine, expected)`` that returned

- its own engine: moved the pin from ``expected`` (or found it there already);
- another engine: found that one. Its own move may have happened before, with the answer lost, and been undone since;
- nothing (the table was unavailable): may have moved the pin at any later moment, or never.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Pin:
    """One call and its answer. Times are of one clock; ``returned`` is None if the answer is not known."""

    began: float
    ended: float
    expected: str | None
    engine: str
    returned: str | None


@dataclass(frozen=True)
class _Step:
    began: float
    ended: float
    move: tuple[str | None, str] | None = None
    """From where to where; it has to find the former."""
    found: str | None = None
    optional: bool = False


def _steps(pin: Pin) -> list[list[_Step]]:
    """The ways in which a call can have gone, each as steps in order."""
    move = (pin.expected, pin.engine)
    if pin.returned is None:
        return [[_Step(pin.began, math.inf, move=move, optional=True)]]
    found = _Step(pin.began, pin.ended, found=pin.returned)
    if pin.returned == pin.engine:
        return [[_Step(pin.began, pin.ended, move=move)], [found]]
    return [[found], [_Step(pin.began, pin.ended, move=move), found]]


def linearizable(history: list[Pin], *, start: str | None, end: str | None) -> bool:
    """Whether there is an order of moments that explains every answer, and leaves the pin at ``end``."""
    ways = [_steps(pin) for pin in history]
    # How far each call has gone: (way, step); way -1 is undecided.
    state = (start, tuple((-1, 0) for _ in history))
    stack, seen = [state], {state}
    while stack:
        engine, progress = stack.pop()
        waiting = [number for number, place in enumerate(progress) if not _done(ways[number], place)]
        if engine == end and all(_never_needed(ways[number], progress[number]) for number in waiting):
            return True
        horizon = min((_ends(ways[number], progress[number]) for number in waiting), default=math.inf)
        for number in waiting:
            way, step = progress[number]
            for chosen in range(len(ways[number])) if way < 0 else (way,):
                following = ways[number][chosen][step]
                if following.began > horizon:
                    continue
                if following.move is not None:
                    if following.move[0] != engine:
                        continue
                    moved: str | None = following.move[1]
                elif following.found != engine:
                    continue
                else:
                    moved = engine
                place = (chosen, step + 1)
                reached = (moved, (*progress[:number], place, *progress[number + 1 :]))
                if reached not in seen:
                    seen.add(reached)
                    stack.append(reached)
    return False


def _done(ways: list[list[_Step]], place: tuple[int, int]) -> bool:
    way, step = place
    return way >= 0 and step == len(ways[way])


def _ends(ways: list[list[_Step]], place: tuple[int, int]) -> float:
    return ways[max(place[0], 0)][place[1]].ended


def _never_needed(ways: list[list[_Step]], place: tuple[int, int]) -> bool:
    return ways[max(place[0], 0)][place[1]].optional
