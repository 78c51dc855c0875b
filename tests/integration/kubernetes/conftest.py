"""One lab for all tests of this folder, and what can be seen of a lab from outside."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onenode.images import etcd_image
from onenode.lab import Lab
from support.labs import kernel_settings, traces

NAMESPACE = "things"


@pytest.fixture(scope="session")
def settings_before() -> dict[str, str]:
    return kernel_settings()


@pytest.fixture(scope="session")
def lab(settings_before: dict[str, str]) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="axlab-", dir="/tmp") as name:
        lab = Lab(Path(name) / "lab")
        lab.up([etcd_image()])
        try:
            strict = {"pod-security.kubernetes.io/enforce": "restricted"}
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": strict}}
            lab.kubectl("apply", "-f", "-", stdin=json.dumps(space))
            yield lab
        finally:
            lab.down()
        assert traces(lab) == []
