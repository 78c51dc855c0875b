from pathlib import Path

from onenode.manifests import NODE_ROOT, node_mounts, node_root, node_volume


def test_the_nodes_files_are_offered_read_only_through_a_claim_that_fits_its_volume() -> None:
    volume, claim = node_root("agents")
    assert volume["spec"]["hostPath"] == {"path": "/"}
    assert volume["spec"]["accessModes"] == claim["spec"]["accessModes"] == ["ReadOnlyMany"]
    assert volume["spec"]["claimRef"] == {"namespace": "agents", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == volume["spec"]["storageClassName"]


def test_claims_of_several_namespaces_have_volumes_of_their_own() -> None:
    assert node_root("one")[0]["metadata"]["name"] != node_root("two")[0]["metadata"]["name"]


def test_mounts_have_the_nodes_paths_and_are_read_only() -> None:
    assert node_mounts([Path("/usr"), Path("/opt/venv")]) == [
        {"name": NODE_ROOT, "mountPath": "/opt/venv", "subPath": "opt/venv", "readOnly": True},
        {"name": NODE_ROOT, "mountPath": "/usr", "subPath": "usr", "readOnly": True},
    ]
    assert node_volume()["persistentVolumeClaim"] == {"claimName": NODE_ROOT, "readOnly": True}


def test_a_folder_inside_another_is_mounted_with_it_and_repeats_count_once() -> None:
    folders = [Path("/usr/lib/python3"), Path("/usr"), Path("/usr"), Path("/usr2")]
    assert [mount["mountPath"] for mount in node_mounts(folders)] == ["/usr", "/usr2"]
