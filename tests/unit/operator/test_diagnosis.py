"""Why pods do not run."""

from datetime import UTC, datetime
from typing import Any

import pytest

from autellix_operator import diagnosis
from autellix_operator.api.conditions import Reason
from autellix_operator.diagnosis import Diagnosis, refused_pods

Json = Any
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def diagnose(pods: list[Json], claims: list[Json] | None = None) -> Diagnosis | None:
    return diagnosis.diagnose(pods, claims or [], NOON)


def pod(name: str = "p", created: str = "2026-01-01T00:00:00Z", **status: Json) -> Json:
    return {"metadata": {"name": name, "creationTimestamp": created, "labels": {}}, "status": status}


def container(**fields: Json) -> Json:
    return {"containerStatuses": [{"name": "engine", "image": "engine:1", "ready": False, "restartCount": 0, **fields}]}


def waiting(reason: str, message: str = "") -> Json:
    return container(state={"waiting": {"reason": reason, "message": message}})


def ended(code: int, message: str = "", restarts: int = 1, **fields: Json) -> Json:
    terminated = {"exitCode": code, "reason": "Error", "message": message, **fields.pop("terminated", {})}
    return container(lastState={"terminated": terminated}, restartCount=restarts, **fields)


def unschedulable(message: str) -> Json:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (waiting("ErrImagePull", "no such host"), Reason.IMAGE_PULL_FAILED, ["engine:1", "no such host"]),
        (waiting("ImagePullBackOff"), Reason.IMAGE_PULL_FAILED, ["engine:1"]),
        (waiting("InvalidImageName"), Reason.IMAGE_PULL_FAILED, ["engine:1"]),
        (waiting("ErrImageNeverPull"), Reason.IMAGE_PULL_FAILED, ["engine:1"]),
        (waiting("CreateContainerConfigError", 'secret "hub" not found'), Reason.SECRET_MISSING, ["hub"]),
        (waiting("CreateContainerConfigError", "couldn't find key t in Secret a/b"), Reason.SECRET_MISSING, ["key t"]),
        (waiting("CreateContainerConfigError", "non-root"), Reason.CONTAINER_CONFIG_ERROR, ["non-root"]),
        (waiting("RunContainerError", "no such file"), Reason.CONTAINER_CONFIG_ERROR, ["no such file"]),
        (ended(1, "model x: not found\n"), Reason.CRASH_LOOP, ["exit code 1", "model x: not found"]),
        (ended(1, state={"running": {}}), Reason.CRASH_LOOP, ["exit code 1"]),
        (ended(137, terminated={"reason": "OOMKilled"}), Reason.OUT_OF_MEMORY, ["memory limit"]),
        (
            unschedulable("0/1 nodes: Insufficient nvidia.com/gpu"),
            Reason.UNSCHEDULABLE,
            ["Insufficient nvidia.com/gpu"],
        ),
    ],
)
def test_a_cause_is_named_with_its_pod(status: Json, reason: Reason, words: list[str]) -> None:
    found = diagnose([pod("engine-1", **status)])
    assert found is not None
    assert found.reason == reason
    for word in ["engine-1", *words]:
        assert word in found.message


def test_while_the_kubelet_waits_to_pull_again_the_cause_keeps_its_words() -> None:
    tried = waiting("ErrImagePull", 'failed to resolve "engine:1": connection refused')
    waits = 'Back-off pulling image "engine:1": ErrImagePull: failed to resolve "engine:1": connection refused'
    assert diagnose([pod(**tried)]) == diagnose([pod(**waiting("ImagePullBackOff", waits))])


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Pending"},
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        container(state={"running": {}}),
        container(ready=True, restartCount=3, lastState={"terminated": {"exitCode": 1}}),
        container(state={"terminated": {"exitCode": 0, "reason": "Completed"}}, restartCount=1),
        ended(1, restarts=0),
        {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    ],
)
def test_what_may_pass_is_no_cause(status: Json) -> None:
    assert diagnose([pod(**status)]) is None


def test_a_crash_loop_stays_one_while_the_container_happens_to_run() -> None:
    in_backoff = ended(1, "boom", state={"waiting": {"reason": "CrashLoopBackOff"}}, restarts=4)
    running_again = ended(1, "boom", state={"running": {}}, restarts=5)
    assert diagnose([pod(**in_backoff)]) == diagnose([pod(**running_again)]) is not None


@pytest.mark.parametrize(
    ("started", "since", "loops"),
    [(True, "11:51:00", True), (True, "11:49:00", False), (False, "11:00:00", True)],
    ids=["ran for nine minutes", "ran for eleven minutes", "never served, however long it runs"],
)
def test_a_crash_of_long_ago_is_no_loop_when_the_pod_is_briefly_unready(started: bool, since: str, loops: bool) -> None:
    running = {"running": {"startedAt": f"2026-01-02T{since}Z"}}
    assert (diagnose([pod(**ended(1, state=running, started=started))]) is not None) is loops


def test_a_pending_claim_is_the_cause_of_an_unschedulable_pod() -> None:
    claims = [
        {"metadata": {"name": "data-demo-etcd-0", "labels": {}}, "status": {"phase": "Pending"}},
        {"metadata": {"name": "data-demo-etcd-1", "labels": {}}, "status": {"phase": "Bound"}},
    ]
    status = unschedulable("pod has unbound immediate PersistentVolumeClaims")
    found = diagnose([pod(**status)], claims)
    assert found is not None
    assert found.reason == Reason.CLAIM_PENDING
    assert "data-demo-etcd-0" in found.message
    assert "data-demo-etcd-1" not in found.message
    other = diagnose([pod(**unschedulable("Insufficient cpu"))], claims)
    assert other is not None
    assert other.reason == Reason.UNSCHEDULABLE


def test_the_newest_failing_pod_counts() -> None:
    old = pod("old", "2026-01-01T00:00:00Z", **ended(1))
    new = pod("new", "2026-01-02T00:00:00Z", **waiting("ErrImagePull"))
    found = diagnose([old, new])
    assert found is not None
    assert "new" in found.message


def test_an_init_container_is_looked_at_first() -> None:
    status = {
        "initContainerStatuses": waiting("ErrImagePull")["containerStatuses"],
        **waiting("PodInitializing"),
    }
    found = diagnose([pod(**status)])
    assert found is not None
    assert found.reason == Reason.IMAGE_PULL_FAILED


def test_a_long_message_is_one_line_and_keeps_its_end_and_the_name_of_the_pod() -> None:
    found = diagnose([pod(**ended(1, "line\n" * 1000 + "the cause"))])
    assert found is not None
    assert len(found.message) < 700
    assert "\n" not in found.message
    assert found.message.startswith("pod p, container engine: ends with exit code 1")
    assert found.message.endswith("the cause")


def test_of_a_traceback_the_exception_is_told() -> None:
    traceback = 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    g()\nValueError: no model x\n'
    found = diagnose([pod("p", **ended(1, traceback))])
    assert found is not None
    assert found.message == "pod p, container engine: ends with exit code 1: ValueError: no model x"


def test_refused_pods_are_told_by_the_deployment() -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    found = refused_pods({"status": {"conditions": [condition]}})
    assert found is not None
    assert found.reason == Reason.PODS_REFUSED
    assert "exceeded quota" in found.message
    assert refused_pods({"status": {"conditions": [condition | {"status": "False"}]}}) is None
    assert refused_pods({}) is None
