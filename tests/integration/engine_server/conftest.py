"""One engine with two slots for all tests of this folder."""

from collections.abc import Iterator

import httpx
import pytest

from support.engine_server import MODEL_NAME, EngineServer

KEY = "integration-engine-key"


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineServer]:
    """Ours, with bounds that suit a model of a few milliseconds a step."""
    scheduling = {"policy": "plas", "queue_bounds_ms": [100, 1000], "min_run_ms": 50}
    with EngineServer(scheduling=scheduling, args=["--max-num-seqs", "2"], key=KEY) as server:
        # The kernels for a few tokens, in an engine that has run none of the others: they have ended a worker before.
        few = httpx.post(
            f"{server.url}/v1/completions",
            json={"model": MODEL_NAME, "prompt": "one two", "max_tokens": 4},
            headers=server.headers,
            timeout=60,
        )
        assert few.status_code == 200, server.log_text()
        yield server
