"""How a parallel run shares the tests out: by file, and the files that take longest first, so that no process is left
with a long one at the end."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
#: Their tests share one engine, whose start takes longest of all: one process runs all of them.
TOGETHER = FOLDER / "engine_server"
LONGEST_FIRST = ("engine_server", "operator", "engine", "controller")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Names what has to run in one process. Here, because xdist looks at it before it sorts anything."""
    shared = TOGETHER if item.path.is_relative_to(TOGETHER) else item.path
    item.add_marker(pytest.mark.xdist_group(str(shared.relative_to(FOLDER))))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by folder; inside one the order stays random."""
    here = [item for item in items if item.path.is_relative_to(FOLDER)]
    here.sort(key=_place)
    items[:] = here + [item for item in items if not item.path.is_relative_to(FOLDER)]


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(FOLDER).parts[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
