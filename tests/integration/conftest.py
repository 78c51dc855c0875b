"""The order in which a parallel run takes up the files: those that take longest first, so that no process is left with
a long one at the end."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
LONGEST_FIRST = ("engine_server", "operator", "engine", "controller")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by folder; inside one the order stays random."""
    here = [item for item in items if item.path.is_relative_to(FOLDER)]
    here.sort(key=_place)
    items[:] = here + [item for item in items if not item.path.is_relative_to(FOLDER)]


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(FOLDER).parts[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
