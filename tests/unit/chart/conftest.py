from pathlib import Path

import pytest

from onenode.binaries import binary


@pytest.fixture(scope="session")
def program() -> Path:
    """The helm of the Kubernetes that the tests run on."""
    return binary("helm")
