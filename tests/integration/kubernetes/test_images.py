"""The images: small, for an ordinary user, free of this machine's settings, able to run where nothing is writable."""

import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from onenode import images
from onenode.lab import Lab
from support.labs import restricted_pod

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1200)]

NAMESPACE = "things"
BUILT = ("operator", "controller", "engine")


class Archive:
    """An OCI archive that is open."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        (entry,) = self._document("index.json")["manifests"]
        self._manifest = self._document(self._blob(entry["digest"]))

    @property
    def configuration(self) -> dict[str, Any]:
        """How a container is run: user, entrypoint, environment."""
        configuration: dict[str, Any] = self._document(self._blob(self._manifest["config"]["digest"]))["config"]
        return configuration

    @property
    def compressed_bytes(self) -> int:
        """What a node has to fetch."""
        return sum(layer["size"] for layer in self._manifest["layers"])

    def own_files(self) -> list[str]:
        """The files above the base image."""
        content = self._tar.extractfile(self._blob(self._manifest["layers"][-1]["digest"]))
        with tarfile.open(fileobj=content) as layer:
            return layer.getnames()

    def _document(self, name: str) -> dict[str, Any]:
        content = self._tar.extractfile(name)
        assert content is not None
        document: dict[str, Any] = json.load(content)
        return document

    @staticmethod
    def _blob(digest: str) -> str:
        return f"blobs/{digest.replace(':', '/')}"


@pytest.fixture(params=BUILT)
def archive(request: pytest.FixtureRequest) -> Iterator[Archive]:
    with tarfile.open(images.archive(request.param)) as tar:
        yield Archive(tar)


def test_an_image_is_small(archive: Archive) -> None:
    assert archive.compressed_bytes < 120e6


def test_an_image_runs_as_an_ordinary_user_and_gets_signals_itself(archive: Archive) -> None:
    assert archive.configuration["User"] == "65532:65532"
    assert archive.configuration["Entrypoint"][0] not in ("/bin/sh", "sh")


def test_our_layer_holds_our_folder_alone_and_no_tools_of_the_build(archive: Archive) -> None:
    names = archive.own_files()
    assert {name for name in names if not name.startswith("opt/autellix/")} <= {"opt", "opt/autellix"}
    assert [name for name in names if name.endswith(("pip.conf", "/bin/pip", "/site-packages/pip"))] == []
    assert [name for name in names if "hatchling" in name] == []


@pytest.mark.parametrize(
    ("name", "argument"), [("operator", "--version"), ("controller", "--help"), ("engine", "--version")]
)
def test_an_image_runs_under_restricted_pod_security(lab: Lab, name: str, argument: str) -> None:
    lab.load_image(images.archive(name))
    pod = restricted_pod(f"run-{name}", images.IMAGES[name], [argument], restart="Never")
    lab.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))
    done = "--for=jsonpath={.status.phase}=Succeeded"
    lab.kubectl("wait", "-n", NAMESPACE, f"pod/run-{name}", done, "--timeout=90s")
    assert f"autellix-{name}" in lab.kubectl("logs", "-n", NAMESPACE, f"run-{name}")


def test_the_typed_resources_that_were_left_out_are_not_missed(lab: Lab) -> None:
    lab.load_image(images.archive("controller"))
    modules = ("kubernetes.aio.client", "kubernetes.aio.config", "kubernetes.aio.dynamic", "autellix_controller.server")
    check = f"import {', '.join(modules)}"
    pod = restricted_pod("imports", images.IMAGES["controller"], ["-c", check], command=["python3"], restart="Never")
    lab.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))
    lab.kubectl("wait", "-n", NAMESPACE, "pod/imports", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
