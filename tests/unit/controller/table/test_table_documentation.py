"""docs/process-table.md keeps its promises."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs/process-table.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    sources = [
        *(ROOT / "tests").glob("*/controller/*/*.py"),
        *(ROOT / "tests/support").glob("table*.py"),
    ]
    defined = {name for source in sources for name in re.findall(r"def (test_\w+)", source.read_text())}
    assert len(named) > 10
    assert named <= defined
