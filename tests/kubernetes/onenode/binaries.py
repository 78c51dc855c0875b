"""The programs of the cluster, built from source and kept in the cache.

A program is named by a digest of all that it is made of: its module's go.mod and go.sum, its source, the flags and the
version of Go. The first build of all of them takes 8 to 17 minutes on two cores; later calls only look.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onenode.cache import cache_folder, digest, prune, published
from onenode.golang import Go, find_go, go_command
from onenode.prerequisites import check_build
from onenode.progress import run, say

_MODULES = Path(__file__).resolve().parent.parent
_HELM = "helm.sh/helm/v3"
_ETCD = "go.etcd.io/etcd"


@dataclass(frozen=True, slots=True)
class Program:
    """A program and where its source is: a package of one of the modules beside this package."""

    name: str
    module: str
    package: str
    packages: int
    """About how many Go packages it is compiled from, so that progress has a measure."""
    contents: str = ""
    """What it is, where the name does not say it."""


PROGRAMS = {
    program.name: program
    for program in (
        Program("pause", "kube", "./pause", 50),
        Program("helm", "tools", f"{_HELM}/cmd/helm", 620),
        Program("coredns", "tools", "./coredns", 160),
        Program(
            "kube", "kube", ".", 2800, "Kubernetes, etcd and kubectl in one; the longest wait of all, 6 to 14 minutes"
        ),
        Program("policies", "policies", ".", 70),  # after `kube`, which has compiled most of what it is made of
    )
}


#: No part of the cluster: built only when asked for by name.
ON_DEMAND = {
    program.name: program
    for program in (
        Program("etcd35", "etcd35", ".", 600),
        Program("rules", "rules", ".", 820, "Prometheus' rule engine, about a minute"),
        # Of the same modules as kube's etcd, and so nearly all compiled with it.
        Program("etcdctl", "etcdtools", f"{_ETCD}/etcdctl/v3", 340),
        Program("etcdutl", "etcdtools", f"{_ETCD}/etcdutl/v3", 450),
    )
}


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the built programs. ``kube`` is etcd, kubectl and each Kubernetes program, by the name it is called."""

    kube: Path
    coredns: Path
    helm: Path
    pause: Path
    policies: Path


def binaries() -> Binaries:
    """All programs; builds what is missing and shows progress on standard error.

    Raises OnenodeError when a build fails.
    """
    return Binaries(**{name: binary(name) for name in PROGRAMS})


def binary(name: str) -> Path:
    """One program of PROGRAMS or ON_DEMAND, built if it is missing."""
    program, go = (PROGRAMS | ON_DEMAND)[name], find_go()
    folder = cache_folder() / "programs"
    return (
        published(
            folder / f"{name}-{digest(_ingredients(program, go))}",
            lambda target: _build(program, go, target / name),
            f"building {name}",
        )
        / name
    )


def kubernetes_version() -> str:
    """The version of Kubernetes that is built, such as ``v1.35.4``."""
    return required_version((_MODULES / "kube" / "go.mod").read_text(), "k8s.io/kubernetes")


def required_version(go_mod: str, module: str) -> str:
    """The version that a go.mod requires of a module."""
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError(f"go.mod does not require {module}")
    return found[1]


def linker_flags(kubernetes: str, helm: str) -> str:
    """The flags that tell the programs their versions.

    Without them the API server calls itself v0.0.0, and helm takes every cluster for v1.20 when it renders a chart.
    """
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    values = {f"{_HELM}/internal/version.version": helm}
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        values |= {
            f"{package}.gitVersion": kubernetes,
            f"{package}.gitMajor": major,
            f"{package}.gitMinor": minor,
            f"{package}.gitTreeState": "clean",
        }
    for package in (f"{_HELM}/pkg/chartutil", f"{_HELM}/pkg/lint/rules"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def compiled_so_far(output: str, expected: int) -> str:
    """How far a ``go build -v`` of about ``expected`` packages has come, from what it has printed."""
    lines = output.splitlines()
    fetched = sum(line.startswith("go: downloading ") for line in lines)
    compiled = len(lines) - sum(line.startswith("go: ") for line in lines)
    return (
        f"{compiled} of about {expected} packages compiled"
        if compiled
        else f"{fetched} modules fetched"
        if fetched
        else ""
    )


def _ingredients(program: Program, go: Go) -> Iterator[tuple[str, bytes]]:
    module = _MODULES / program.module
    sources = sorted((module / program.package).glob("*.go")) if program.package.startswith(".") else []
    for file in (module / "go.mod", module / "go.sum", *sources):
        yield file.name, file.read_bytes()
    yield "package", program.package.encode()
    yield "flags", _flags().encode()
    yield "go", go.version.encode()


def _flags() -> str:
    helm = required_version((_MODULES / "tools" / "go.mod").read_text(), _HELM)
    return linker_flags(kubernetes_version(), helm)


def _build(program: Program, go: Go, target: Path) -> None:
    check_build(target)
    prune(target.parent.parent)
    command: list[str | Path] = [
        go_command(go),
        "build",
        "-v",
        "-trimpath",
        "-mod=readonly",
        "-buildvcs=false",
        "-ldflags",
        _flags(),
    ]
    if program.contents:
        say(f"{program.name}: {program.contents}")
    run(
        [*command, "-o", target, program.package],
        what=f"{program.name}: compiling",
        log=cache_folder() / "logs" / f"build-{program.name}.log",
        cwd=_MODULES / program.module,
        environment={"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        describe=lambda printed: compiled_so_far(printed, program.packages),
    )
