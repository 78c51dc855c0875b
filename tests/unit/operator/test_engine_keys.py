"""The exchange of the engine key by reconciles over an API in memory."""

import base64
import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autellix_operator.api.names import Key
from autellix_operator.desired.objects import Images
from autellix_operator.keys.rotation import FORMER_KEYS
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, SECRET, ApiError, Conflict, Object, Resource
from autellix_operator.reconcile import Reconciler, Result
from support.memory_applier import MemoryApplier, cluster_resource

Json = Any
KEY = Key("space", "demo")
IMAGES = Images(engine="engine:1", controller="controller:1", etcd="etcd:1")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
USED, ACCEPTED = (SECRET, "space", "demo-engine-key"), (SECRET, "space", "demo-engine-accepted-keys")
UNTIL = "autellix.dev/former-keys-until"


class Operator:
    """Operators one after another: each reconcile is the first of a new one."""

    def __init__(self, spec: Json | None = None) -> None:
        self.api = MemoryApplier()
        self.now = NOON
        self._numbers = itertools.count(1)
        self.api.put(AUTELLIX_CLUSTER, cluster_resource(spec or {}))

    async def reconcile(self) -> Result:
        made = Reconciler(self.api, IMAGES, lambda: self.now, lambda: f"secret-{next(self._numbers)}")
        return await made.reconcile(KEY)

    @property
    def used(self) -> str:
        return base64.b64decode(self.api.objects[USED]["data"]["api-key"]).decode()

    @property
    def accepted(self) -> list[str]:
        return base64.b64decode(self.api.objects[ACCEPTED]["data"]["keys"]).decode().splitlines()

    @property
    def until(self) -> str | None:
        found: str | None = self.api.objects[ACCEPTED]["metadata"].get("annotations", {}).get(UNTIL)
        return found

    def templates(self) -> Json:
        return self.api.pod_templates()


@pytest.fixture
async def operator() -> Operator:
    made = Operator()
    await made.reconcile()
    return made


async def test_a_deleted_key_is_exchanged_and_no_pod_is_made_anew(operator: Operator) -> None:
    old, templates = operator.used, operator.templates()
    assert (operator.accepted, operator.until) == ([old], None)
    del operator.api.objects[USED]
    result = await operator.reconcile()
    assert operator.used != old
    assert operator.accepted == [operator.used, old]
    assert operator.until == "2026-01-02T12:10:00Z"
    assert result.requeue_after == FORMER_KEYS.total_seconds()
    operator.now += FORMER_KEYS - timedelta(seconds=1)
    result = await operator.reconcile()
    assert (len(operator.accepted), result.requeue_after) == (2, 1)
    operator.now += timedelta(seconds=0.9)
    result = await operator.reconcile()
    assert (len(operator.accepted), result.requeue_after) == (2, 1)
    operator.now += timedelta(seconds=1)
    result = await operator.reconcile()
    assert operator.accepted == [operator.used]
    assert [operator.until, result.requeue_after] == [None, None]
    assert operator.templates() == templates


async def test_the_accepted_keys_are_there_before_any_pod_reads_them() -> None:
    operator = Operator()
    await operator.reconcile()
    written = [name for _, _, name in operator.api.writes]
    assert written.index("demo-engine-accepted-keys") < written.index("demo-engine")


@pytest.mark.parametrize("failing", range(12))
async def test_an_operator_that_ends_half_way_is_followed_by_one_that_goes_on(operator: Operator, failing: int) -> None:
    """Whichever write is the last one: the old key stays accepted, and there is no third."""
    old = operator.used
    del operator.api.objects[USED]
    operator.api.writes_left = failing
    with contextlib.suppress(ApiError):
        await operator.reconcile()
    assert old in operator.accepted
    operator.api.writes_left = None
    await operator.reconcile()
    assert operator.accepted == [operator.used, old]


@pytest.mark.parametrize("data", [None, {}, {"api-key": ""}, {"api-key": "dHdvIHdvcmRz"}, {"api-key": "=="}])
async def test_a_key_that_no_header_can_carry_is_exchanged(operator: Operator, data: Json) -> None:
    old = operator.used
    found = operator.api.objects[USED]
    found.pop("data")
    operator.api.put(SECRET, found | ({} if data is None else {"data": data}))
    await operator.reconcile()
    assert operator.used not in (old, "", "two words")
    assert operator.accepted == [operator.used, old]


async def test_a_key_that_somebody_chose_is_used(operator: Operator) -> None:
    old = operator.used
    found = operator.api.objects[USED]
    found["data"]["api-key"] = base64.b64encode(b"chosen").decode()
    operator.api.put(SECRET, found)
    await operator.reconcile()
    assert (operator.used, operator.accepted) == ("chosen", ["chosen", old])


async def test_a_key_that_leaked_is_dropped_at_once_by_deleting_both(operator: Operator) -> None:
    old = operator.used
    del operator.api.objects[USED], operator.api.objects[ACCEPTED]
    await operator.reconcile()
    assert operator.accepted == [operator.used] != [old]


@pytest.mark.parametrize("damage", ["delete", "empty", "garbage"])
async def test_accepted_keys_that_are_lost_are_those_in_use(operator: Operator, damage: str) -> None:
    old = operator.used
    if damage == "delete":
        del operator.api.objects[ACCEPTED]
    else:
        found = operator.api.objects[ACCEPTED]
        found["data"] = {"keys": "/w=="} if damage == "garbage" else {}
        operator.api.put(SECRET, found)
    await operator.reconcile()
    assert (operator.used, operator.accepted) == (old, [old])


@pytest.mark.parametrize("written", ["soon", "2026-01-02T12:00:00", ""])
async def test_a_time_that_is_none_is_the_stated_one(operator: Operator, written: str) -> None:
    del operator.api.objects[USED]
    await operator.reconcile()
    found = operator.api.objects[ACCEPTED]
    found["metadata"]["annotations"][UNTIL] = written
    operator.api.put(SECRET, found)
    await operator.reconcile()
    assert operator.until == "2026-01-02T12:10:00Z"


async def test_an_exchange_replaces_no_engine_for_the_secrets_behind_its_environment() -> None:
    source = {"secretKeyRef": {"name": "store", "key": "password"}}
    operator = Operator({"engine": {"env": [{"name": "PASSWORD", "valueFrom": source}]}})
    metadata = {"namespace": "space", "name": "store"}
    operator.api.put(SECRET, {"metadata": metadata, "data": {"password": "Zmlyc3Q="}})
    await operator.reconcile()
    templates = operator.templates()
    assert "environment-digest" in str(templates)
    del operator.api.objects[USED]
    await operator.reconcile()
    assert operator.templates() == templates


async def test_a_key_that_goes_while_it_is_looked_at_is_tried_again_and_never_used_without_its_value(
    operator: Operator,
) -> None:
    original = operator.api.list

    async def collected(resource: Resource, *arguments: Any) -> "list[Object]":
        """Garbage collection takes the Secret between the look at it and the next step."""
        found = await original(resource, *arguments)
        if resource == SECRET:
            operator.api.objects.pop(USED, None)
        return found

    old = operator.used
    operator.api.list = collected  # type: ignore[method-assign, assignment]
    with pytest.raises(Conflict):
        await operator.reconcile()
    operator.api.list = original  # type: ignore[method-assign]
    await operator.reconcile()
    assert operator.accepted == [operator.used, old]


@pytest.mark.parametrize("name", ["demo-engine-key", "demo-engine-accepted-keys"])
async def test_the_secret_of_somebody_else_is_not_used(name: str) -> None:
    operator = Operator()
    theirs = operator.api.put(SECRET, {"metadata": {"name": name, "namespace": "space"}, "data": {"api-key": "eA=="}})
    await operator.reconcile()
    ready = operator.api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"][0]
    assert (ready["reason"], f"Secret {name}" in ready["message"]) == ("NameConflict", True)
    assert operator.api.objects[SECRET, "space", name] == theirs
    assert not operator.templates()
