"""The CPU build of the kernels, made once for all tests."""

from pathlib import Path

import pytest

from autellix_kernels.host import build


@pytest.fixture(scope="session")
def host_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """block_move.cu, compiled by g++."""
    return build.build(tmp_path_factory.mktemp("kernels"))
