"""What `make` and `.ci/run` say on a machine that lacks something: one line, with what to do."""

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make") or "make"


#: What the environment is made from: `make` wants it to be there.
SOURCES = ("Makefile", "make", ".ci", "pyproject.toml", "requirements.lock", "engine_image/vllm-cpu/pyproject.toml")


class Machine:
    """A fresh checkout, as far as `make` looks at it, and a PATH with little on it."""

    def __init__(self, folder: Path) -> None:
        self._programs, self._cache, self._checkout = folder / "bin", folder / "cache", folder / "checkout"
        (self._checkout / "engine_image" / "vllm-cpu").mkdir(parents=True)
        for name in SOURCES:
            copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copyfile
            copy(REPOSITORY / name, self._checkout / name)
        self._programs.mkdir()
        for name in ("bash", "env", "dirname", "mkdir", "chmod"):
            (self._programs / name).symlink_to(shutil.which(name) or name)
        self.program("uname", "echo Linux x86_64")
        self.log = folder / "log"

    def program(self, name: str, script: str) -> None:
        """Puts a program on the PATH; ``$LOG`` is a file for notes."""
        file = self._programs / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    def python(self, *, version_fits: bool, has_venv: bool) -> None:
        """A ``python3`` that answers what the Makefile asks it."""
        self.program(
            "python3",
            'case "$*" in\n'
            f"*version_info*) exit {0 if version_fits else 1};;\n"
            f"*ensurepip*) exit {0 if has_venv else 1};;\n"
            "-V) echo Python 3.9.2;;\n"
            "esac",
        )

    def run(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command that sees these programs and an empty cache."""
        environment = {"PATH": str(self._programs), "XDG_CACHE_HOME": str(self._cache), "LOG": str(self.log)}
        return subprocess.run(
            command, cwd=self._checkout, env=environment | variables, capture_output=True, text=True, timeout=60
        )

    def refusal(self, *command: str, **variables: str) -> str:
        """The line with which a command refuses its work."""
        done = self.run(*command, **variables)
        assert done.returncode != 0, done.stdout
        return next(line for line in done.stderr.splitlines() if not line.startswith("make: ***"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_python_one_is_asked_for(machine: Machine) -> None:
    assert machine.refusal(MAKE, "python") == (
        "make: there is no python3; install Python 3.11 to 3.13, or name one: make PYTHON=..."
    )


def test_a_python_that_does_not_fit_is_named(machine: Machine) -> None:
    machine.python(version_fits=False, has_venv=True)
    assert machine.refusal(MAKE, "python") == (
        "make: python3 is Python 3.9.2; it takes Python 3.11 to 3.13: make PYTHON=..."
    )


def test_a_machine_of_another_kind_is_refused_with_a_way_out(machine: Machine) -> None:
    machine.python(version_fits=True, has_venv=True)
    machine.program("uname", "echo Darwin arm64")
    assert machine.refusal(MAKE, "installable").endswith(
        "this is Darwin arm64; use a machine of that kind, virtual or not"
    )


@pytest.mark.parametrize("target", ["installable", "machine", "venv"])
def test_a_python_without_venv_is_told_before_anything_is_installed(machine: Machine, target: str) -> None:
    machine.python(version_fits=True, has_venv=False)
    line = machine.refusal(MAKE, target)
    assert line == "make: python3 has no venv module; on Debian, as root: apt-get install python3-venv"


def test_a_machine_with_uv_needs_no_venv_module(machine: Machine) -> None:
    machine.python(version_fits=True, has_venv=False)
    machine.program("uv", "")
    assert machine.run(MAKE, "installable").returncode == 0


@pytest.mark.parametrize(
    ("user", "variables"), [("1000", {}), ("0", {"AUTELLIX_NO_INSTALL": "1"})], ids=["no root", "not wanted"]
)
def test_ci_names_what_is_missing_where_it_may_not_install(
    machine: Machine, user: str, variables: dict[str, str]
) -> None:
    machine.program("id", f"echo {user}")
    machine.program("apt-get", "echo called >> $LOG")
    machine.program("git", "")
    assert machine.refusal(".ci/run", **variables) == (
        ".ci/run: missing: make g++ python3-venv (named as Debian does); "
        "as root, run: apt-get install --no-install-recommends make g++ python3-venv"
    )
    assert not machine.log.exists()


def test_ci_without_apt_names_what_is_missing(machine: Machine) -> None:
    machine.program("id", "echo 0")
    assert "missing: make git g++ python3-venv" in machine.refusal(".ci/run")


def test_ci_installs_what_is_missing_then_lints_and_tests(machine: Machine) -> None:
    machine.python(version_fits=True, has_venv=True)
    machine.program("id", "echo 0")
    machine.program("g++", "")
    make = "printf '#!/bin/bash\\necho make $* >> $LOG\\n' > ${0%/*}/make; chmod +x ${0%/*}/make"
    machine.program("apt-get", f"echo apt-get $* >> $LOG; {make}")
    assert machine.run(".ci/run").returncode == 0
    assert machine.log.read_text().splitlines() == [
        "apt-get update",
        "apt-get install --yes --no-install-recommends make git",
        "make lint",
        "make test",
    ]


def test_ci_installs_nothing_where_nothing_is_missing(machine: Machine) -> None:
    machine.python(version_fits=True, has_venv=True)
    for name in ("make", "git", "g++", "apt-get"):
        machine.program(name, f"echo {name} $* >> $LOG")
    assert machine.run(".ci/run").returncode == 0
    assert machine.log.read_text().splitlines() == ["make lint", "make test"]
