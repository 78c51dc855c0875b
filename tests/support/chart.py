"""The chart as helm renders it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts" / "autellix"
CRD = REPOSITORY / "crds" / "autellix.dev_autellixclusters.yaml"
#: The releases of Kubernetes between which everything has to be valid. The newest is that of the schemas at hand.
OLDEST_KUBERNETES, NEWEST_KUBERNETES = "1.31", "1.37"


def earlier_chart(folder: Path) -> Path:
    """The chart as of the newest release tag, or without one as it was first committed, unpacked into ``folder``.

    Skips the test in a shallow clone without tags, where the first commit is the last one and nothing would be shown.
    """
    path = str(CHART.relative_to(REPOSITORY))
    tags = _git("tag", "--list", "v*", "--sort=-version:refname").split()
    if not tags and _git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone holds no earlier chart: git fetch --unshallow --tags")
    commits = _git("log", "--format=%H", "--reverse", "--", f"{path}/Chart.yaml").split()
    archive = subprocess.run(
        ["git", "archive", (tags or commits)[0], path], cwd=REPOSITORY, capture_output=True, check=True, timeout=60
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True, timeout=60)
    return folder / path


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


class HelmError(Exception):
    """helm refused; the message is what it printed."""


def helm(program: Path, *arguments: str) -> str:
    """Runs helm; gives what it printed. Raises HelmError."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise HelmError(done.stderr.strip())
    return done.stdout


def render(
    program: Path,
    values: dict[str, Any] | None = None,
    *,
    release: str = "test",
    namespace: str = "default",
    flags: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """All objects of the chart with these values. Raises HelmError."""
    command = [str(program), "template", release, str(CHART), "--namespace", namespace, "--values", "-", *flags]
    done = subprocess.run(command, input=yaml.safe_dump(values or {}), capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise HelmError(done.stderr.strip())
    # The loader in C: the definition of the API is long, and it is read in every test of the chart.
    return [document for document in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if document]
