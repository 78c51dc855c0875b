"""Queues, agenda and cadence: the parts that the core is made of."""

import random

import pytest

from autellix_engine.policy import Cadence
from autellix_engine.policy.agenda import Agenda
from autellix_engine.policy.calls import Call
from autellix_engine.policy.programs import Program
from autellix_engine.policy.queues import LevelQueues


def _call(level: int, order: int) -> Call:
    return Call(
        key=f"{level}/{order}",
        program=Program("p"),
        thread="",
        path_before=0,
        wait_before=0,
        level=level,
        quanta=(1,) * 3,
        quantum_end=1,
        order=order,
        min_run=0,
    )


def test_queues_iterate_by_level_then_order_and_backwards() -> None:
    calls = [_call(level, order) for level in range(3) for order in range(4)]
    shuffled = random.Random(0).sample(calls, len(calls))
    queues = LevelQueues(3)
    for call in shuffled:
        queues.add(call)
    assert list(queues) == calls
    assert list(reversed(queues)) == calls[::-1]
    assert queues.sizes() == (4, 4, 4)
    assert queues.first() is calls[0]
    assert list(queues.heads(2)) == [call for call in calls if call.order < 2]
    queues.check_integrity()
    for call in shuffled:
        assert call in queues
        queues.remove(call)
        assert call not in queues
        queues.check_integrity()
    assert (len(queues), queues.first()) == (0, None)


def test_a_call_that_is_not_queued_cannot_be_removed() -> None:
    queues = LevelQueues(1)
    with pytest.raises(KeyError):
        queues.remove(_call(0, 1))


def test_agenda_gives_the_earliest_and_forgets_what_was_moved_or_discarded() -> None:
    rng = random.Random(1)
    agenda: Agenda[int] = Agenda()
    expected: dict[int, float] = {}
    for _ in range(5_000):
        item = rng.randrange(50)
        if rng.random() < 0.7:
            time = rng.random()
            agenda.set(item, time)
            expected[item] = time
        else:
            agenda.discard(item)
            expected.pop(item, None)
        first = agenda.first()
        assert first == (min((time, item) for item, time in expected.items()) if expected else None)
        assert len(agenda) == len(expected)
    assert len(agenda._heap) <= 2 * 50 + 65


def test_a_decision_is_due_in_every_step_by_default() -> None:
    cadence = Cadence(steps_per_decision=1, spare_calls=0)
    assert [cadence.due() for _ in range(4)] == [True] * 4


def test_a_decision_is_due_every_n_steps_and_when_a_call_arrives() -> None:
    cadence = Cadence(steps_per_decision=3, spare_calls=0)
    assert [cadence.due() for _ in range(7)] == [True, False, False, True, False, False, True]
    cadence.arrived()
    assert [cadence.due() for _ in range(4)] == [True, False, False, True]


def test_a_finished_call_makes_a_decision_due_unless_a_spare_one_takes_its_slot() -> None:
    cadence = Cadence(steps_per_decision=10, spare_calls=2)
    assert cadence.due()
    for _ in range(2):
        cadence.finished()
        assert not cadence.due()
    cadence.finished()
    assert cadence.due()
    cadence.finished()
    assert not cadence.due()
