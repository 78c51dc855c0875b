"""Short commands whose output is wanted, and what is said when they fail."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from onenode.errors import OnenodeError


def output(
    command: Sequence[str | Path],
    *,
    what: str,
    stdin: str | None = None,
    seconds: float = 300,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command prints on standard output. ``what`` names it in messages.

    Raises OnenodeError, with what the command said, when it fails, cannot be started or takes longer than ``seconds``.
    """
    try:
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, env=environment)
    except FileNotFoundError as missing:
        raise OnenodeError(f"{what}: {missing.filename} is not installed") from missing
    except subprocess.TimeoutExpired as slow:
        raise OnenodeError(f"{what}: not done within {seconds:.0f} s") from slow
    if result.returncode:
        said = result.stderr.strip() or result.stdout.strip() or f"status {result.returncode}"
        raise OnenodeError(f"{what} failed: {said}")
    return result.stdout
