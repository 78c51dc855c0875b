import json
import tomllib
from pathlib import Path

import pytest

from onenode import configuration, parts
from onenode.layout import BORROWED_FOLDERS, DNS_SERVICE_ADDRESS, Layout
from onenode.manifests import cluster_objects

LAYOUT = Layout(Path("/tmp/lab"))


def test_containerd_keeps_everything_below_the_lab_or_in_its_private_run() -> None:
    settings = tomllib.loads(configuration.containerd(LAYOUT))
    assert settings["root"] == "/tmp/lab/containerd"
    assert settings["state"].startswith("/run/")
    assert settings["grpc"]["address"] == str(LAYOUT.containerd_socket)
    assert settings["plugins"]["io.containerd.grpc.v1.cri"]["sandbox_image"] == configuration.PAUSE_IMAGE


def test_nobody_tries_to_lower_an_out_of_memory_score() -> None:
    settings = tomllib.loads(configuration.containerd(LAYOUT))
    assert settings["oom_score"] == 0
    assert settings["plugins"]["io.containerd.grpc.v1.cri"]["restrict_oom_score_adj"] is True
    assert configuration.kubelet(LAYOUT)["oomScoreAdj"] == 0
    assert configuration.kube_proxy(LAYOUT)["oomScoreAdj"] == 0


def test_the_kubelet_uses_this_labs_containerd_control_groups_and_name_service() -> None:
    kubelet = configuration.kubelet(LAYOUT)
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{LAYOUT.containerd_socket}"
    assert kubelet["cgroupRoot"] == f"/{LAYOUT.cgroup}"
    assert kubelet["clusterDNS"] == [DNS_SERVICE_ADDRESS]


def test_kube_proxy_leaves_the_machines_connection_table_alone() -> None:
    assert configuration.kube_proxy(LAYOUT)["conntrack"] == {"maxPerCore": 0, "min": 0}


def test_names_of_the_cluster_and_other_names_are_separate_server_blocks() -> None:
    cluster, others = configuration.corefile(LAYOUT).split("\n.:53 ")
    assert "kubernetes {" in cluster
    assert "template" not in cluster
    assert "NXDOMAIN" in others


def test_files_that_are_json_parse_and_all_lie_in_the_lab() -> None:
    files = configuration.files(LAYOUT)
    assert all(LAYOUT.root in path.parents for path in files)
    for path, text in files.items():
        if path.suffix in {".json", ".conflist"}:
            assert json.loads(text)


@pytest.mark.parametrize("part", parts.commands(LAYOUT))
def test_a_part_refers_only_to_files_that_are_configured_or_made(part: str) -> None:
    known = {str(path) for path in configuration.files(LAYOUT)}
    made = (str(LAYOUT.pki), str(LAYOUT.root / "etcd"))
    for word in parts.commands(LAYOUT)[part]:
        value = word.partition("=")[2] or word
        if value.startswith(str(LAYOUT.root)):
            assert value in known or value.startswith(made), word


def test_parts_run_with_the_labs_programs_first_and_without_the_persons_proxies() -> None:
    environment = parts.environment(LAYOUT)
    assert environment["PATH"].split(":")[0] == str(LAYOUT.programs)
    assert {name.lower() for name in environment} == {"path", "home", "lang"}


def test_every_borrowed_folder_has_a_folder_of_the_lab_behind_it() -> None:
    assert {LAYOUT.root / own for own in BORROWED_FOLDERS.values()} <= set(LAYOUT.folders)


def test_claims_have_a_default_class_and_the_controller_manager_provides_it() -> None:
    classes = [item for item in cluster_objects()["items"] if item["kind"] == "StorageClass"]
    assert [item["provisioner"] for item in classes] == ["kubernetes.io/host-path"]
    assert classes[0]["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    assert "--enable-hostpath-provisioner=true" in parts.commands(LAYOUT)["kube-controller-manager"]
