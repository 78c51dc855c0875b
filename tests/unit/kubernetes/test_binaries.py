import re
from pathlib import Path

import pytest

from onenode import binaries
from onenode.golang import recent_enough

GO_MOD = "module x\n\ngo 1.25.0\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.5\n\tk8s.io/kubernetes v1.35.4\n)\n"


def test_a_required_version_is_read_from_go_mod() -> None:
    assert binaries.required_version(GO_MOD, "k8s.io/kubernetes") == "v1.35.4"
    assert binaries.required_version("require helm.sh/helm/v3 v3.20.2\n", "helm.sh/helm/v3") == "v3.20.2"


def test_a_module_that_is_not_required_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"does not require k8s\.io/api"):
        binaries.required_version(GO_MOD, "k8s.io/api")


def test_what_two_programs_are_both_made_of_is_of_one_version_so_that_it_is_compiled_once() -> None:
    def versions(module: str) -> dict[str, str]:
        """Those of required modules, and what replaces them."""
        text = (Path(binaries.__file__).parents[1] / module / "go.mod").read_text()
        used = re.sub(r"exclude \(.*?\n\)", "", text, flags=re.DOTALL)
        return dict(re.findall(r"^\t(\S+(?: =>)?) (.*?)(?: // indirect)?$", used, re.MULTILINE))

    kube, policies = versions("kube"), versions("policies")
    shared = kube.keys() & policies.keys()
    assert {"golang.org/x/net", "k8s.io/client-go =>"} <= shared
    assert {name: policies[name] for name in shared} == {name: kube[name] for name in shared}
    assert {f"{name} =>" for name in policies} & kube.keys() <= policies.keys(), "replaced there, so replaced here"


def test_programs_are_told_their_versions() -> None:
    flags = binaries.linker_flags("v1.35.4", "v3.20.2")
    assert "-X k8s.io/component-base/version.gitVersion=v1.35.4" in flags
    assert "-X helm.sh/helm/v3/internal/version.version=v3.20.2" in flags
    assert "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=35" in flags


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", ""),
        ("go: downloading a v1\ngo: downloading b v1\n", "2 modules fetched"),
        ("go: downloading a v1\nk8s.io/api/core/v1\nk8s.io/client-go\n", "2 of about 70 packages compiled"),
    ],
)
def test_progress_of_a_build_is_told_in_few_words(output: str, said: str) -> None:
    assert binaries.compiled_so_far(output, 70) == said


@pytest.mark.parametrize(
    ("version", "enough"),
    [("go1.24.13", False), ("go1.25.0", True), ("go1.26", True), ("go2.0", True), ("devel go-1a2b3c", True)],
)
def test_only_a_go_that_can_build_the_modules_is_used(version: str, enough: bool) -> None:
    assert recent_enough(version) is enough


def test_a_program_is_built_anew_exactly_when_something_it_is_made_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kube", "tools"):
        (tmp_path / module / "pause").mkdir(parents=True)
        (tmp_path / module / "go.mod").write_text(GO_MOD + "\nrequire helm.sh/helm/v3 v3.20.2\n")
        (tmp_path / module / "go.sum").write_text("sum")
    source = tmp_path / "kube" / "pause" / "main.go"
    source.write_text("package main")
    monkeypatch.setattr(binaries, "_MODULES", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built: list[Path] = []

    def build(program: object, go: object, target: Path) -> None:
        built.append(target)
        target.touch()

    monkeypatch.setattr(binaries, "_build", build)
    first = binaries.binary("pause")
    assert binaries.binary("pause") == first
    assert len(built) == 1
    source.write_text("package main // changed")
    assert binaries.binary("pause") != first
    (tmp_path / "kube" / "go.sum").write_text("other")
    binaries.binary("pause")
    (tmp_path / "tools" / "go.sum").write_text("another module's")
    binaries.binary("pause")
    assert len(built) == 3
