from pathlib import Path

from onenode.manifests import NODE_ROOT, cluster_objects, node_mounts, node_root, node_volume


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


def test_the_labs_own_users_may_look_and_change_nothing() -> None:
    roles = [each for each in cluster_objects()["items"] if each["kind"] == "ClusterRole"]
    rules = [rule for role in roles for rule in role["rules"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}
    assert "secrets" not in {kind for rule in rules for kind in rule["resources"]}
    bound = {
        binding["subjects"][0]["name"]: binding["roleRef"]["name"]
        for binding in cluster_objects()["items"]
        if binding["kind"] == "ClusterRoleBinding"
    }
    assert bound == {"system:coredns": "autellix-lab:dns", "system:kube-network-policies": "autellix-lab:policies"}
