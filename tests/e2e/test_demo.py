"""The demo, from its second act to its table: what it shows is what it promises."""

import re

import pytest

from demo import scenario, story
from support.installation import Installation

pytestmark = [pytest.mark.heavy, pytest.mark.lab, pytest.mark.soak]


def test_short_programs_come_first_under_plas_and_all_programs_are_in_the_table(installation: Installation) -> None:
    told: list[str] = []
    story.play(installation, told.append)
    text = "\n".join(told)

    def row(label: str) -> list[str]:
        found = re.search(rf"^{re.escape(label)} +(.*)$", text, re.MULTILINE)
        assert found is not None, text
        return found[1].split()

    sooner, *unit = row("short programs: wait for a call's first token, median")[-3:]
    assert unit == ["times", "sooner"]
    assert float(sooner) > 4
    stock, plas = map(int, row("preemptions"))
    assert stock == 0
    assert plas > 0
    table = text.partition("The process table")[2]
    for program in (*scenario.LONG, *scenario.SHORT):
        assert re.search(rf"^{program.name} +anonymous", table, re.MULTILINE), table
