"""What the operator makes of the samples is valid in the oldest and the newest supported Kubernetes."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from autellix_operator.api.names import Cluster
from autellix_operator.api.spec import parse_spec
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.objects import Images, desired_objects
from support.chart import NEWEST_KUBERNETES, OLDEST_KUBERNETES, REPOSITORY

SAMPLES = sorted((REPOSITORY / "docs" / "samples").glob("*.yaml"))
#: Added to each sample: what none of them has.
MORE: dict[str, Any] = {
    "monitoring": {"monitors": "Enabled", "alerts": "Enabled"},
    "networkPolicy": {"mode": "Enabled"},
}


def resources(sample: Path) -> list[dict[str, Any]]:
    documents = [document for document in yaml.safe_load_all(sample.read_text()) if document]
    return [document for document in documents if document["kind"] == "AutellixCluster"]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if resources(s)], ids=lambda sample: sample.stem)
@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
def test_objects_are_valid(sample: Path, version: str, images: Images) -> None:
    (resource,) = resources(sample)
    resource["metadata"] |= {"namespace": "space", "uid": "u", "generation": 1}
    resource["spec"] |= MORE
    found = desired_objects(Cluster("space", "demo", "u"), parse_spec(resource), images, Digests())
    checked = 0
    for each in found:
        if not each["apiVersion"].startswith("monitoring.coreos.com"):
            kubernetes_validate.validate(each, version, strict=True)
            checked += 1
    assert checked > 10
