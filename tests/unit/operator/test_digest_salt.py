"""The secret behind digests of contents outlives the keys, and an upgrade takes over the one that lay with them."""

import base64
import contextlib
import copy
import itertools
from typing import Any

import pytest

from autellix_operator.kube.applier import AUTELLIX_CLUSTER, SECRET, ApiError
from autellix_operator.reconcile import Reconciler
from support.memory_applier import MemoryApplier, cluster_resource
from support.reconciles import IMAGES, KEY, NOON, condition

Json = Any

USED, ACCEPTED = (SECRET, "space", "demo-engine-key"), (SECRET, "space", "demo-engine-accepted-keys")
SALT = (SECRET, "space", "demo-digest-salt")
SOURCE = {"secretKeyRef": {"name": "store", "key": "password"}}


class Operator:
    """A cluster whose engines hold a Secret, and operators one after another, each of which draws other secrets."""

    def __init__(self) -> None:
        self.api = MemoryApplier()
        env = [{"name": "PASSWORD", "valueFrom": SOURCE}]
        self.api.put(AUTELLIX_CLUSTER, cluster_resource({"engine": {"env": env}}))
        metadata = {"namespace": "space", "name": "store"}
        self.api.put(SECRET, {"metadata": metadata, "data": {"password": "Zmlyc3Q="}})
        self._numbers = itertools.count(1)

    async def reconcile(self) -> None:
        await Reconciler(self.api, IMAGES, lambda: NOON, lambda: f"secret-{next(self._numbers)}").reconcile(KEY)

    async def follows_one_that_kept_it_with_the_keys(self, salt: str) -> None:
        """The operator before applied the salt as a part of another Secret."""
        accepted = copy.deepcopy(self.api.objects[ACCEPTED])
        await self.api.apply(SECRET, accepted | {"data": accepted["data"] | {"digest-salt": salt}})

    def templates(self) -> Json:
        return self.api.pod_templates()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
async def operator() -> Operator:
    made = Operator()
    await made.reconcile()
    return made


async def test_dropping_a_leaked_key_replaces_no_engine(operator: Operator) -> None:
    before = operator.templates()
    assert "environment-digest" in str(before)
    del operator.api.objects[USED], operator.api.objects[ACCEPTED]
    await operator.reconcile()
    assert operator.templates() == before


async def test_an_upgrade_takes_over_the_salt_that_lay_with_the_keys_and_replaces_no_engine(operator: Operator) -> None:
    before = operator.templates()
    salt = operator.api.objects.pop(SALT)["data"]["salt"]
    await operator.follows_one_that_kept_it_with_the_keys(salt)
    await operator.reconcile()
    assert operator.api.objects[SALT]["data"]["salt"] == salt
    assert "digest-salt" not in operator.api.objects[ACCEPTED]["data"]
    assert operator.templates() == before
    operator.api.writes.clear()
    await operator.reconcile()
    assert operator.api.writes == []


@pytest.mark.parametrize("failing", range(6))
async def test_an_upgrade_that_ends_half_way_loses_no_salt(operator: Operator, failing: int) -> None:
    before = operator.templates()
    salt = operator.api.objects.pop(SALT)["data"]["salt"]
    await operator.follows_one_that_kept_it_with_the_keys(salt)
    operator.api.writes_left = failing
    with contextlib.suppress(ApiError):
        await operator.reconcile()
    operator.api.writes_left = None
    await operator.reconcile()
    assert operator.api.objects[SALT]["data"]["salt"] == salt
    assert operator.templates() == before


@pytest.mark.parametrize("data", [{}, {"salt": ""}, {"salt": "=="}, None])
async def test_a_salt_that_is_lost_is_made_anew(operator: Operator, data: Json) -> None:
    found = operator.api.objects.pop(SALT)
    if data is not None:
        operator.api.put(SECRET, found | {"data": data})
    await operator.reconcile()
    assert operator.api.objects[SALT]["data"]["salt"] not in ("", "==", found["data"]["salt"])
    before = operator.templates()
    await operator.reconcile()
    assert operator.templates() == before


async def test_the_secret_of_somebody_else_is_not_used() -> None:
    operator = Operator()
    metadata = {"name": "demo-digest-salt", "namespace": "space"}
    theirs = operator.api.put(SECRET, {"metadata": metadata, "data": {"salt": encoded("theirs")}})
    await operator.reconcile()
    assert condition(operator.api, "Ready")["reason"] == "NameConflict"
    assert operator.api.objects[SALT] == theirs
    assert not operator.templates()
