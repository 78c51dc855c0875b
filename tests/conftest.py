"""What holds for all tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no defect: time is measured in benchmarks, not by how long one example took.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets, whose paths may have 107 bytes: those of ``tmp_path`` are too long in a parallel run."""
    with tempfile.TemporaryDirectory(prefix="test-") as folder:
        yield Path(folder)
