"""What Kubernetes is told of an engine that cannot start, and what the operator makes of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from autellix_operator.last_words import last_words
from support.engine_server import EngineFailed, EngineServer

pytestmark = pytest.mark.heavy


def cause(tmp_path: Path, args: Sequence[str] = (), model: str | None = None) -> str:
    """What ends up in a condition: Kubernetes keeps the termination log or, if that is empty, the log's end."""
    said = tmp_path / "termination-log"
    said.touch()
    engine = EngineServer(args=args, model=model, env={"AUTELLIX_TERMINATION_LOG": str(said)})
    with pytest.raises(EngineFailed):
        engine.start()
    lines = engine.log_text().splitlines()[-80:]
    return last_words(said.read_text() or "\n".join(lines)[-2048:])


def test_too_little_kv_cache_is_named_with_the_length_that_would_fit(tmp_path: Path) -> None:
    words = cause(tmp_path, ["--num-gpu-blocks-override", "8"])
    assert words.startswith("ValueError: To serve at least one request with the model's max seq len (4096)")
    assert (
        "the estimated maximum model length is 896" in words
    )  # 8 blocks of 128 tokens, less the one that is never used


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "/models/nowhere" in cause(tmp_path, model="/models/nowhere")
