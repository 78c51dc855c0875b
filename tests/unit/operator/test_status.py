"""What conditions say, and when their times move."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autellix_operator.api.conditions import FAILURES, ConditionType, Reason
from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import parse_spec
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.events import event_of_change
from autellix_operator.status import invalid_status, status_of
from autellix_operator.verdicts import Observed
from support.memory_applier import cluster_resource

Json = Any

CLUSTER = Cluster("space", "demo", "uid-demo")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


TEMPLATE = {"metadata": {"labels": {}}, "spec": {"image": "new"}}


def replica_set(digest: str, template: Json) -> Json:
    """The set of pods that Kubernetes makes from a template of ``workload``."""
    labelled = {"metadata": {"labels": {"pod-template-hash": digest}}, "spec": template["spec"]}
    metadata = {"labels": {"pod-template-hash": digest}, "ownerReferences": [{"uid": "uid-w"}]}
    return {"metadata": metadata, "spec": {"replicas": 1, "template": labelled}}


def failing_pod(digest: str) -> Json:
    """An engine whose image cannot be had."""
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    labels = {"app.kubernetes.io/component": "engine", "pod-template-hash": digest}
    return {
        "metadata": {"name": f"pod-{digest}", "labels": labels},
        "status": {"containerStatuses": [{"name": "engine", "image": "i", "state": waiting}]},
    }


def workload(wanted: int = 1, *, generation: int = 2, seen: int = 2, **counts: int) -> Json:
    counts = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted} | counts
    return {
        "kind": "Deployment",
        "metadata": {"name": "w", "uid": "uid-w", "generation": generation},
        "spec": {"replicas": wanted, "template": TEMPLATE},
        "status": {"observedGeneration": seen, **counts},
    }


READY = {Component.ENGINE: workload(), Component.CONTROLLER: workload(2), Component.ETCD: workload()}


def status(
    workloads: Json = None, spec: Json = None, previous: Json = None, now: datetime = NOON, **observed: Json
) -> Json:
    found = Observed(READY | (workloads or {}), **observed)
    return status_of(CLUSTER, parse_spec(cluster_resource(spec or {})), 7, found, previous or {}, now)


def conditions(found: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found["conditions"]}


def test_all_parts_ready_is_ready() -> None:
    found = status()
    assert conditions(found) == {
        "Ready": ("True", "Available"),
        "EnginesReady": ("True", "Available"),
        "ControllerReady": ("True", "Available"),
        "ProcessTableReady": ("True", "Available"),
        "Progressing": ("False", "Available"),
        "Degraded": ("False", "Available"),
    }
    assert found["observedGeneration"] == 7
    assert found["engines"] == "1/1"
    assert found["endpoint"] == "http://demo.space.svc/v1"
    assert all(each["observedGeneration"] == 7 for each in found["conditions"])


def test_every_condition_is_present_from_the_first_visit_on() -> None:
    spec = parse_spec(cluster_resource({}))
    found = status_of(CLUSTER, spec, 1, Observed(), {}, NOON)
    assert conditions(found).keys() == set(ConditionType) - {ConditionType.MONITORING_READY}
    assert conditions(found)["Ready"] == ("False", "Starting")


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        (workload(2, readyReplicas=1), "Starting"),
        (workload(1, generation=1) | {"status": {}}, "Starting"),
        (workload(2, replicas=3, updatedReplicas=1), "Updating"),
        (workload(2, generation=3), "Updating"),
        (workload(2, replicas=1, updatedReplicas=1, readyReplicas=1), "Starting"),
        (workload(0), "ScaledToZero"),
    ],
)
def test_old_pods_that_still_serve_do_not_make_it_ready(engines: Json, expected: str) -> None:
    found = conditions(status({Component.ENGINE: engines}))
    assert found["EnginesReady"] == ("False", expected)
    assert found["Ready"] == ("False", expected)
    assert found["Progressing"][0] == ("False" if expected == "ScaledToZero" else "True")


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (0, "no engine is wanted: calls are answered with 503"),
        (300, "no engine is wanted: calls are held for at most 300 s"),
    ],
)
def test_a_cluster_without_engines_says_what_calls_meet(seconds: int, message: str) -> None:
    found = status({Component.ENGINE: workload(0)}, {"controller": {"deadlines": {"holdSeconds": seconds}}})
    assert {each["message"] for each in found["conditions"] if each["reason"] == "ScaledToZero"} == {message}


def test_ready_takes_the_cause_of_a_failure_before_that_of_a_start() -> None:
    problem = Diagnosis(Reason.SECRET_MISSING, "no Secret keys")
    found = status({Component.ETCD: workload(1, readyReplicas=0)}, problems={Component.CONTROLLER: problem})
    assert conditions(found)["Ready"] == ("False", "SecretMissing")
    assert conditions(found)["ProcessTableReady"] == ("False", "Starting")
    assert conditions(found)["Progressing"] == ("True", "Starting")
    assert found["conditions"][0]["message"] == "no Secret keys"


def test_what_serves_stays_ready_when_an_object_it_refers_to_goes_and_is_degraded() -> None:
    missing = {Component.CONTROLLER: Diagnosis(Reason.SECRET_MISSING, "no Secret keys")}
    found = status(missing=missing)
    assert conditions(found)["Ready"] == ("True", "Available")
    assert conditions(found)["Degraded"] == ("True", "SecretMissing")
    starting = status({Component.CONTROLLER: workload(2, readyReplicas=0)}, missing=missing)
    assert conditions(starting)["Ready"] == ("False", "SecretMissing")
    first, second = event_of_change(CLUSTER, status(), found, NOON), event_of_change(CLUSTER, found, status(), NOON)
    assert first is not None
    assert second is not None
    assert (first["type"], first["reason"], second["reason"]) == ("Warning", "SecretMissing", "Available")


def test_what_is_not_applied_is_not_ready_however_well_it_serves() -> None:
    refused = Diagnosis(Reason.APPLY_REFUSED, "Deployment: refused")
    found = conditions(status(problems={Component.ENGINE: refused}))
    assert found["Ready"] == ("False", "ApplyRefused")
    assert found["Degraded"] == ("True", "ApplyRefused")


def test_a_failing_pod_speaks_for_its_own_part_only() -> None:
    engines, controllers = workload(1, readyReplicas=0), workload(2, readyReplicas=1)
    workloads = {Component.ENGINE: engines, Component.CONTROLLER: controllers}
    found = conditions(status(workloads, pods=[failing_pod("1")], replica_sets=[replica_set("1", TEMPLATE)]))
    assert found["EnginesReady"] == ("False", "ImagePullFailed")
    assert found["ControllerReady"] == ("False", "Starting")


def test_an_image_that_cannot_be_had_is_told_with_the_pull_secrets_that_are_not_there() -> None:
    engines = {Component.ENGINE: workload(1, readyReplicas=0)}
    pods: Json = {"pods": [failing_pod("1")], "replica_sets": [replica_set("1", TEMPLATE)]}
    lacking = Diagnosis(Reason.SECRET_MISSING, "spec.imagePullSecrets: there is no Secret registry")
    found = status(engines, pull_secrets=lacking, **pods)
    assert conditions(found)["EnginesReady"] == ("False", "ImagePullFailed")
    told = "container engine: image i: no such host; spec.imagePullSecrets: there is no Secret registry"
    assert found["conditions"][0]["message"].endswith(told)
    assert conditions(status(pull_secrets=lacking))["Degraded"] == ("False", "Available"), "images may be public"


def test_a_failing_pod_that_is_being_replaced_is_not_what_the_condition_tells() -> None:
    engines = workload(1, replicas=2, updatedReplicas=1, readyReplicas=0)
    sets = [replica_set("old", {"spec": {"image": "old"}}), replica_set("new", TEMPLATE)]
    found = conditions(status({Component.ENGINE: engines}, pods=[failing_pod("old")], replica_sets=sets))
    assert found["EnginesReady"] == ("False", "Updating")
    both = [failing_pod("old"), failing_pod("new")]
    failed = status({Component.ENGINE: engines}, pods=both, replica_sets=sets)
    assert conditions(failed)["EnginesReady"] == ("False", "ImagePullFailed")
    assert "pod-new" in failed["conditions"][0]["message"]


def test_a_message_of_any_length_fits_into_the_status() -> None:
    found = invalid_status("spec." + "x" * 5000, 1, {}, NOON)
    assert all(len(each["message"]) <= 2048 for each in found["conditions"])


ELSEWHERE = {"processTable": {"etcd": {"endpoints": ["a:1"]}}}
REACHED = {"controllers": 2, "connected": 2}
CUT_OFF = {"controllers": 2, "connected": 1, "cause": "a:1: UNAUTHENTICATED"}


@pytest.mark.parametrize(
    ("spec", "said", "table", "ready", "degraded"),
    [
        (ELSEWHERE, {}, ("Unknown", "NotReported"), ("True", "Available"), ("False", "Available")),
        (ELSEWHERE, REACHED, ("True", "External"), ("True", "Available"), ("False", "Available")),
        (ELSEWHERE, CUT_OFF, *[("False", "TableUnreachable")] * 2, ("True", "TableUnreachable")),
        ({}, {}, ("True", "Available"), ("True", "Available"), ("False", "Available")),
        ({}, REACHED, ("True", "Available"), ("True", "Available"), ("False", "Available")),
        ({}, CUT_OFF, *[("False", "TableUnreachable")] * 2, ("True", "TableUnreachable")),
    ],
)
def test_controllers_say_whether_the_process_table_can_be_reached(
    spec: Json, said: Json, table: Json, ready: Json, degraded: Json
) -> None:
    found = conditions(status(spec=spec, table=said))
    assert (found["ProcessTableReady"], found["Ready"], found["Degraded"]) == (table, ready, degraded)


def test_who_is_cut_off_from_the_process_table_and_why_is_in_the_message() -> None:
    found = status(table=CUT_OFF)
    (message,) = {each["message"] for each in found["conditions"] if each["reason"] == "TableUnreachable"}
    assert message == "1 of 2 controllers cannot reach etcd: a:1: UNAUTHENTICATED"
    event = event_of_change(CLUSTER, status(), found, NOON)
    assert event is not None
    assert (event["type"], event["reason"]) == ("Warning", "TableUnreachable")


def test_members_that_are_away_are_told_before_controllers_that_miss_them() -> None:
    found = conditions(status({Component.ETCD: workload(3, readyReplicas=1)}, table=CUT_OFF))
    assert found["ProcessTableReady"] == ("False", "Starting")


def test_of_controllers_that_start_there_is_nothing_to_say_about_an_etcd_elsewhere() -> None:
    found = conditions(status({Component.CONTROLLER: workload(2, readyReplicas=0)}, ELSEWHERE))
    assert (found["ProcessTableReady"], found["Ready"]) == (("Unknown", "NotReported"), ("False", "Starting"))


def test_the_time_of_a_condition_moves_with_its_status_only() -> None:
    first = status()
    later = NOON + timedelta(hours=1)
    same = status(previous=first, now=later)
    assert same == first
    worse = status({Component.ENGINE: workload(1, readyReplicas=0)}, previous=first, now=later)
    times = {each["type"]: each["lastTransitionTime"] for each in worse["conditions"]}
    assert times["Ready"] == times["EnginesReady"] == times["Progressing"] == "2026-01-02T13:00:00Z"
    assert times["ControllerReady"] == "2026-01-02T12:00:00Z"
    other_reason = status({Component.ENGINE: workload(0)}, previous=worse, now=later + timedelta(hours=1))
    times = {each["type"]: each["lastTransitionTime"] for each in other_reason["conditions"]}
    assert times["Ready"] == "2026-01-02T13:00:00Z"


def test_a_wrong_spec_is_not_ready_and_keeps_what_was_known() -> None:
    before = status()
    found = invalid_status("spec.x: wrong", 8, before, NOON)
    assert conditions(found)["Ready"] == ("False", "InvalidSpec")
    assert conditions(found)["EnginesReady"] == ("Unknown", "InvalidSpec")
    assert found["conditions"][0]["message"] == "spec.x: wrong"
    assert found["observedGeneration"] == 8
    assert found["endpoint"] == before["endpoint"]


def test_figures_are_left_to_who_writes_them() -> None:
    before = status() | {"programs": {"live": 3}, "processTable": REACHED}
    assert not {"programs", "processTable"} & invalid_status("spec.x: wrong", 8, before, NOON).keys()
    assert not {"programs", "processTable"} & status(previous=before).keys()


def test_an_event_tells_each_change_of_ready_once() -> None:
    starting = status({Component.ENGINE: workload(1, readyReplicas=0)})
    ready = status(previous=starting)
    first = event_of_change(CLUSTER, {}, starting, NOON)
    second = event_of_change(CLUSTER, starting, ready, NOON)
    assert first is not None
    assert second is not None
    assert (first["reason"], second["reason"]) == ("Starting", "Available")
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert event_of_change(CLUSTER, ready, ready, NOON) is None
    again = event_of_change(CLUSTER, starting, ready, NOON + timedelta(minutes=1))
    assert again is not None
    assert again["metadata"]["name"] == second["metadata"]["name"]


def test_the_next_cause_with_the_same_reason_is_told_too_and_each_once() -> None:
    def lacking(name: str) -> Json:
        return status(missing={Component.ENGINE: Diagnosis(Reason.SECRET_MISSING, f"there is no Secret {name}")})

    first, second = lacking("a"), lacking("b")
    event = event_of_change(CLUSTER, first, second, NOON)
    assert event is not None
    assert (event["type"], event["message"]) == ("Warning", "there is no Secret b")
    assert event_of_change(CLUSTER, second, second, NOON) is None
    back = event_of_change(CLUSTER, second, first, NOON)
    again = event_of_change(CLUSTER, first, second, NOON + timedelta(minutes=1))
    assert back is not None
    assert again is not None
    assert back["metadata"]["name"] != again["metadata"]["name"] == event["metadata"]["name"], "to and fro is no news"


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3)])
def test_a_message_that_counts_makes_no_event(before: int, after: int) -> None:
    first, second = (status({Component.ENGINE: workload(4, readyReplicas=each)}) for each in (before, after))
    assert first["conditions"] != second["conditions"]
    assert event_of_change(CLUSTER, first, second, NOON) is None


def test_another_message_of_any_failure_is_told_after_a_change_of_the_spec() -> None:
    def refused(message: str, generation: int) -> Json:
        problem = {Component.ENGINE: Diagnosis(Reason.APPLY_REFUSED, message)}
        found = Observed(READY, problems=problem)
        return status_of(CLUSTER, parse_spec(cluster_resource({})), generation, found, {}, NOON)

    assert event_of_change(CLUSTER, refused("used: 1", 1), refused("used: 2", 1), NOON) is None
    assert event_of_change(CLUSTER, refused("args: bad", 1), refused("args: bad", 2), NOON) is None
    event = event_of_change(CLUSTER, refused("args: bad", 1), refused("image: bad", 2), NOON)
    assert event is not None
    assert event["message"] == "image: bad"


@pytest.mark.parametrize("reason", Reason)
def test_failures_are_warnings(reason: Reason) -> None:
    found = status(problems={Component.ENGINE: Diagnosis(reason, "x")})
    event = event_of_change(CLUSTER, {}, found, NOON)
    assert event is not None
    assert event["type"] == ("Warning" if reason in FAILURES else "Normal")
