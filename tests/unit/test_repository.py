"""Rules about the repository itself that no other tool checks."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENT_FOLDERS = [
    *("operator", "controller", "engine_image", "wire", "kernels"),
    *("client", "bench", "charts", "crds", "docs"),
]


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name]


def test_no_top_level_folder_is_a_package_that_would_shadow_the_standard_library() -> None:
    offenders = [f for f in COMPONENT_FOLDERS if (ROOT / f / "__init__.py").exists()]
    assert offenders == []


def test_no_test_folder_is_a_package_that_would_shadow_a_component() -> None:
    kinds = ("unit", "integration", "e2e")
    offenders = [str(p.relative_to(ROOT)) for kind in kinds for p in (ROOT / "tests" / kind).rglob("__init__.py")]
    assert offenders == []


@pytest.mark.parametrize("lock", ["requirements.lock", "operator/requirements.lock", "controller/requirements.lock"])
def test_locks_hold_hashes_and_no_address_of_an_index(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    pinned = [line for line in text.splitlines() if "==" in line and not line.startswith(" ")]
    assert pinned
    assert text.count("--hash=sha256:") >= len(pinned)


def test_every_console_script_and_plugin_names_an_existing_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = list(project["scripts"].values())
    for group in project["entry-points"].values():
        targets += group.values()
    folders = ("wire", "operator", "controller", "engine_image")
    for target in targets:
        module = target.split(":")[0].replace(".", "/") + ".py"
        assert any((ROOT / f / module).exists() for f in folders), target


def test_tracked_files_carry_no_lock_that_records_an_index() -> None:
    assert [p.name for p in tracked_files() if p.name == "uv.lock"] == []
