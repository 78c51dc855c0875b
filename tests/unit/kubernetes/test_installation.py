"""How the end-to-end tests and the demo install the chart."""

import json

import pytest
import yaml

from onenode import images
from support.installation import CHART, Installation, chart_values
from support.recording_target import RecordingTarget

IMAGES = {
    "operator": "registry.example:5000/operator",
    "controller": "localhost/controller:dev",
    "engine": "registry.example:5000/engine:1",
    "etcd": f"etcd@sha256:{'0' * 64}",
}


@pytest.mark.parametrize("upgrade", [False, True])
def test_values_reach_helm_on_standard_input_so_that_messages_about_it_stay_short(*, upgrade: bool) -> None:
    target = RecordingTarget(images=IMAGES)
    Installation(target).install(upgrade=upgrade)
    arguments, stdin = target.calls[-1], target.inputs[-1]
    assert str(CHART) in arguments
    assert len(" ".join(arguments)) < len(str(CHART)) + 120
    assert "--values" in arguments
    values = json.loads(stdin or "")
    assert values["image"] == {
        "registry": "",
        "repository": "registry.example:5000/operator",
        "tag": "latest",
        "digest": "",
    }
    assert values["defaultImages"]["engine"]["repository"] == "registry.example:5000/engine"
    assert values["defaultImages"]["engine"]["tag"] == "1"
    assert values["defaultImages"]["controller"]["tag"] == "dev"
    assert values["defaultImages"]["etcd"] == {
        "registry": "",
        "repository": "etcd",
        "tag": "",
        "digest": f"sha256:{'0' * 64}",
    }


def test_what_is_installed_already_can_be_installed_again_by_an_upgrade() -> None:
    target = RecordingTarget()
    Installation(target).install(upgrade=True)
    assert target.calls[-1][:2] == ("upgrade", "--install")


def test_what_is_gone_already_can_be_removed_again() -> None:
    target = RecordingTarget()
    Installation(target).uninstall()
    assert "--ignore-not-found" in target.calls[-1]


def test_the_values_for_a_throw_away_kubernetes_name_the_images_that_it_imports() -> None:
    file = CHART.parents[1] / "tests" / "kubernetes" / "values.yaml"
    assert yaml.safe_load(file.read_text()) == chart_values(images.IMAGES.__getitem__)
