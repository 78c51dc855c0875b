"""What the demo does to a cluster that goes on without it, and when its programs begin."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from demo import scenario, story
from onenode.errors import OnenodeError
from support.installation import MARK, OPERATOR_NAMESPACE
from support.recording_target import RecordingTarget
from support.traffic import Program, ProgramRun


def test_it_can_be_removed_where_nothing_of_it_is_left() -> None:
    target = RecordingTarget()
    story.elsewhere(target).remove()
    assert target.calls
    assert all("--ignore-not-found" in call for call in target.calls)
    # Asked for by its type, an AutellixCluster is an error where the API is not installed.
    assert not [call for call in target.calls if "axc" in call]


@pytest.mark.parametrize("theirs", [OPERATOR_NAMESPACE, story.NAMESPACE])
def test_what_the_demo_did_not_make_is_neither_changed_nor_removed(theirs: str) -> None:
    target = RecordingTarget(namespaces={theirs: {}})
    with pytest.raises(OnenodeError, match=f"the namespace {theirs} is there, and neither the demo nor"):
        story.elsewhere(target).install(upgrade=True)
    with pytest.raises(OnenodeError, match=f"the namespace {theirs} is there"):
        story.elsewhere(target).remove()
    assert {call[0] for call in target.calls} == {"get"}


def test_what_a_demo_before_made_is_used_again_and_removed() -> None:
    ours = {MARK: "true"}
    target = RecordingTarget(namespaces={OPERATOR_NAMESPACE: ours, story.NAMESPACE: ours})
    story.elsewhere(target).install(upgrade=True)
    story.elsewhere(target).remove()
    removals = [call[:3] for call in target.calls if "delete" in call or "uninstall" in call]
    assert removals == [("delete", "namespace", story.NAMESPACE), ("uninstall", "autellix", "--ignore-not-found")]


def test_on_a_cluster_of_others_the_operator_sees_the_demo_alone() -> None:
    target = RecordingTarget()
    story.elsewhere(target).install(upgrade=True)
    assert json.loads(target.inputs[-1] or "")["watchNamespaces"] == [story.NAMESPACE]


class Engine:
    """Runs each long program in the slot it gets after so many looks."""

    def __init__(self, *, held_at_look: float) -> None:
        self._held_at_look, self._looks = held_at_look, 0
        self.began: list[str] = []

    async def run(self, programs: Sequence[Program]) -> list[ProgramRun]:
        self.began += [f"{program.name} at look {self._looks}" for program in programs]
        await asyncio.sleep(0.2)
        return [ProgramRun(program=program, seconds=1.0) for program in programs]

    async def running(self) -> int:
        self._looks += 1
        return scenario.SLOTS if self._looks >= self._held_at_look else scenario.SLOTS - 1


async def test_short_programs_begin_when_the_long_ones_hold_every_slot() -> None:
    engine = Engine(held_at_look=3)
    runs = await story.play_programs(engine.run, engine.running)
    assert [run.program for run in runs] == [*scenario.LONG, *scenario.SHORT]
    assert engine.began == [
        *(f"{program.name} at look 1" for program in scenario.LONG),
        *(f"{program.name} at look 3" for program in scenario.SHORT),
    ]


async def test_long_programs_that_never_hold_every_slot_are_an_error() -> None:
    engine = Engine(held_at_look=float("inf"))
    with pytest.raises(OnenodeError, match="did not hold every slot"):
        await story.play_programs(engine.run, engine.running)
    assert not [name for name in engine.began if name.startswith("short")]
