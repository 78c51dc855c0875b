"""One engine with two slots for all tests of this folder."""

from collections.abc import Iterator

import pytest

from support.engine_server import EngineServer

KEY = "integration-engine-key"


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineServer]:
    """Ours, with bounds that suit a model of a few milliseconds a step."""
    scheduling = {"policy": "plas", "queue_bounds_ms": [100, 1000], "min_run_ms": 50}
    with EngineServer(scheduling=scheduling, args=["--max-num-seqs", "2"], key=KEY) as server:
        yield server
