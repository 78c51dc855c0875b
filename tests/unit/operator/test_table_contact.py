"""What controllers say of the process table, and whose word counts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autellix_operator.figures.parse import Unreadable
from autellix_operator.figures.scrape import http_scraper
from autellix_operator.figures.table import TableState, summary, table_state, witnesses
from support.running_controller import running_controller

Json = Any

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HERE, AWAY = TableState(connected=True, cause=""), TableState(connected=False, cause="etcd-0:2379:\n UNAUTHENTICATED")


def ago(seconds: float) -> str:
    return (NOON - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    component: str, name: str = "", *, ready: float | None = None, runs: float | None = None, made: float = 600
) -> Json:
    """A pod that has been ready, and whose container has been running, for so many seconds. Those that are called old
    and new have templates of their own."""
    status: Json = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "False"}]}
    if ready is not None:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(ready)}]
    if runs is not None:
        status["containerStatuses"] = [{"name": component, "state": {"running": {"startedAt": ago(runs)}}}]
    template = name if name in ("old", "new") else "same"
    labels = {"app.kubernetes.io/component": component, "pod-template-hash": template}
    metadata = {"name": name or component, "labels": labels, "creationTimestamp": ago(made)}
    return {"metadata": metadata, "status": status}


def going(found: Json) -> Json:
    return found | {"metadata": {**found["metadata"], "deletionTimestamp": ago(1)}}


MEMBER = pod("etcd", ready=60)
CONTROLLER = pod("controller", "c-1", ready=1)
OLD = pod("controller", "old", ready=500)


@pytest.mark.parametrize(
    ("pods", "external", "names"),
    [
        pytest.param([CONTROLLER, MEMBER], False, ["c-1"], id="ready"),
        pytest.param(
            [pod("controller", "b", ready=1), pod("controller", "a", ready=9)], True, ["a", "b"], id="by name"
        ),
        pytest.param([pod("controller", runs=29)], True, [], id="has just started and had no time to connect"),
        pytest.param([pod("controller", runs=30)], True, ["controller"], id="cannot get ready"),
        pytest.param([pod("controller")], True, [], id="does not run"),
        pytest.param([going(CONTROLLER), going(pod("controller", runs=99))], True, [], id="ends"),
        pytest.param([CONTROLLER | {"status": {}}], True, [], id="has no address"),
        pytest.param([CONTROLLER, pod("etcd", ready=29)], False, [], id="etcd has just come back"),
        pytest.param([CONTROLLER, MEMBER, pod("etcd")], False, [], id="a member is away"),
        pytest.param([CONTROLLER, going(MEMBER)], False, [], id="a member ends"),
        pytest.param([CONTROLLER], False, [], id="there is no member"),
        pytest.param([CONTROLLER], True, ["c-1"], id="etcd is elsewhere"),
        pytest.param([OLD, pod("controller", "new", ready=1, made=1)], True, ["new"], id="of the newest template"),
        pytest.param([OLD, pod("controller", "new", made=1)], True, [], id="the new one is about to say something"),
        pytest.param(
            [OLD, pod("controller", "new", runs=30, made=31)], True, ["new"], id="the new one never gets ready"
        ),
        pytest.param(
            [OLD, going(pod("controller", "new", ready=1, made=1))], True, ["old"], id="the new one was taken back"
        ),
    ],
)
def test_the_word_of_a_controller_counts_once_it_could_have_reached_etcd(
    pods: list[Json], external: bool, names: list[str]
) -> None:
    assert [found["metadata"]["name"] for found in witnesses(pods, NOON, external=external)] == names


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], {}),
        ([HERE, HERE], {"controllers": 2, "connected": 2}),
        ([HERE, AWAY], {"controllers": 2, "connected": 1, "cause": "etcd-0:2379: UNAUTHENTICATED"}),
        ([AWAY], {"controllers": 1, "connected": 0, "cause": "etcd-0:2379: UNAUTHENTICATED"}),
    ],
)
def test_the_status_has_counts_and_the_cause_of_the_first_that_is_cut_off(
    states: list[TableState], expected: Json
) -> None:
    assert summary(states) == expected


def test_a_cause_of_any_length_fits_into_the_status() -> None:
    assert len(summary([TableState(connected=False, cause="x" * 9999)])["cause"]) == 512


@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", b'{"ready": true, "reasons": [], "degraded": []}'])
def test_an_answer_that_does_not_tell_is_no_word(answer: bytes) -> None:
    with pytest.raises(Unreadable):
        table_state(answer)


async def test_a_controller_that_cannot_reach_its_etcd_says_so_although_it_is_not_ready() -> None:
    async with (
        http_scraper() as scraper,
        running_controller("http://127.0.0.1:1", ready=False, table="etcd://127.0.0.1:1") as replica,
        replica.http.get("/readyz") as answer,
    ):
        assert answer.status == 503
        told = json.loads(await answer.read())["table"]
        port = int(replica.url.rpartition(":")[2])
        found = await scraper.readiness("127.0.0.1", port)
        assert found is not None
        assert (table_state(found).connected, told["connected"]) == (False, False)
        cause = table_state(found).cause
        # The same from one look to the next: the status would be written each time.
        assert cause
        assert " for " not in cause


async def test_a_controller_that_reaches_its_table_says_so() -> None:
    async with http_scraper() as scraper, running_controller("http://127.0.0.1:1", ready=False) as replica:
        found = await scraper.readiness("127.0.0.1", int(replica.url.rpartition(":")[2]))
    assert found is not None
    assert table_state(found) == HERE
