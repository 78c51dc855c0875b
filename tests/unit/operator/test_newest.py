"""Whose failures count while pods are replaced."""

from typing import Any

from autellix_operator.newest import newest_pods, newest_revision

Json = Any


def template(image: str, **labels: str) -> Json:
    return {"metadata": {"labels": {"app": "x", **labels}}, "spec": {"containers": [{"image": image}]}}


def deployment(image: str) -> Json:
    return {
        "kind": "Deployment",
        "metadata": {"uid": "d", "generation": 2},
        "spec": {"replicas": 1, "template": template(image)},
        "status": {"observedGeneration": 2},
    }


def replica_set(image: str, digest: str, replicas: int = 1, owner: str = "d") -> Json:
    metadata = {"labels": {"pod-template-hash": digest}, "ownerReferences": [{"uid": owner}]}
    spec = {"replicas": replicas, "template": template(image, **{"pod-template-hash": digest})}
    return {"metadata": metadata, "spec": spec}


def stateful_set(seen: int = 2) -> Json:
    return {
        "kind": "StatefulSet",
        "metadata": {"uid": "s", "generation": 2},
        "status": {"observedGeneration": seen, "updateRevision": "new"},
    }


def pod(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}}}


OLD, NEW = pod("old", pod_template_hash="1"), pod("new", pod_template_hash="2")


def test_pods_of_the_newest_template_count_and_older_ones_do_not() -> None:
    sets = [replica_set("a", "1"), replica_set("b", "2")]
    assert newest_pods(deployment("b"), [OLD, NEW], sets) == [NEW]


def test_going_back_makes_the_older_set_the_newest_again() -> None:
    sets = [replica_set("a", "1"), replica_set("b", "2")]
    assert newest_pods(deployment("a"), [OLD, NEW], sets) == [OLD]


def test_the_newest_revision_is_the_one_that_the_deployment_has_now() -> None:
    sets = [replica_set("a", "1"), replica_set("b", "2"), replica_set("c", "3", owner="another")]
    assert newest_revision(deployment("b"), sets) == "2"
    assert newest_revision(deployment("a"), sets) == "1"
    assert newest_revision(deployment("c"), sets) is None


def test_old_pods_do_not_count_while_the_first_new_one_is_being_made() -> None:
    assert newest_pods(deployment("b"), [OLD], [replica_set("a", "1"), replica_set("b", "2")]) == []


def test_nothing_is_said_of_a_template_that_kubernetes_has_not_taken_up() -> None:
    assert newest_pods(deployment("b"), [OLD], [replica_set("a", "1")]) == []
    assert newest_pods(stateful_set(seen=1), [pod("old", controller_revision_hash="old")], []) == []


def test_old_pods_count_where_no_new_one_can_be_made_before_they_go() -> None:
    assert newest_pods(deployment("b"), [OLD], [replica_set("a", "1"), replica_set("b", "2", 0)]) == [OLD]


def test_a_set_of_another_deployment_is_not_taken_for_ours() -> None:
    assert newest_pods(deployment("b"), [NEW], [replica_set("b", "2", owner="other")]) == []


def test_members_of_the_update_revision_count_and_others_where_there_is_none() -> None:
    old, new = pod("old", controller_revision_hash="old"), pod("new", controller_revision_hash="new")
    assert newest_pods(stateful_set(), [old, new], []) == [new]
    assert newest_pods(stateful_set(), [old], []) == [old]


def test_pods_on_their_way_out_never_count() -> None:
    going = {"metadata": {**NEW["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert newest_pods(deployment("b"), [going], [replica_set("b", "2", 0)]) == []
