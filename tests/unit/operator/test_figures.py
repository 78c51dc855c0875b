"""What clusters do in terms of programs, as their pods tell it."""

import asyncio
import json
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from autellix_operator.api.names import Key
from autellix_operator.figures.keeper import DELETION_COST, FiguresKeeper
from autellix_operator.figures.loop import FiguresLoop
from autellix_operator.figures.parse import Unreadable, controller_figures, rounded, worst_wait_percent
from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    POD,
    SECRET,
    ApiError,
    Conflict,
    NotFound,
    Refused,
    Resource,
)
from support.memory_applier import MemoryApplier, cluster_resource

Json = Any

KEY = Key("space", "demo")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
CONTROLLER = """\
# TYPE autellix_controller_programs gauge
autellix_controller_programs 7.0
# TYPE autellix_controller_engine_programs gauge
autellix_controller_engine_programs{engine="engine-a"} 5.0
autellix_controller_engine_programs{engine="engine-b"} 2.0
"""
ENGINE = "# TYPE autellix_engine_worst_wait_ratio gauge\nautellix_engine_worst_wait_ratio 1.2345\n"


class Pages:
    """A Scraper over pages by address."""

    def __init__(self, **pages: str) -> None:
        self.pages = {"controller": CONTROLLER, **pages}
        self.keys: dict[str, str] = {}
        """Pods that ask for a key."""
        self.asked: list[tuple[str, int, str]] = []
        self.readinesses: dict[str, bytes] = {}
        """Answers about readiness by address."""

    async def page(self, address: str, port: int, key: str = "") -> str | None:
        self.asked.append((address, port, key))
        return self.pages.get(address) if key == self.keys.get(address, key) else None

    async def readiness(self, address: str, port: int) -> bytes | None:
        assert port == 8080
        return self.readinesses.get(address)


def keeper(found: MemoryApplier, pages: Pages) -> FiguresKeeper:
    return FiguresKeeper(found, pages, lambda: NOON)


def pod(name: str, component: str, *, ready: bool = True, **metadata: Json) -> Json:
    labels = {
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "autellix-operator",
        "autellix.dev/cluster": "demo",
    }
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-02T11:00:00Z"}]
    metadata = {"name": name, "namespace": "space", "labels": labels, **metadata}
    return {"metadata": metadata, "status": {"podIP": name, "conditions": conditions}}


def api(*pods: Json) -> MemoryApplier:
    found = MemoryApplier()
    found.put(AUTELLIX_CLUSTER, cluster_resource({}) | {"status": {"conditions": []}})
    metadata = {"name": "demo-engine-accepted-keys", "namespace": "space"}
    found.put(SECRET, {"metadata": metadata, "data": {"keys": "a2V5Cm9sZAo="}})  # key, old
    for each in pods:
        found.put(POD, each)
    return found


def programs(found: MemoryApplier) -> Json:
    return found.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"].get("programs")


def cost(found: MemoryApplier, name: str) -> str | None:
    annotations = found.objects[POD, "space", name]["metadata"].get("annotations", {})
    value: str | None = annotations.get(DELETION_COST)
    return value


def test_figures_are_read_from_the_pages_of_pods() -> None:
    found = controller_figures(CONTROLLER)
    assert (found.programs, found.by_engine) == (7, {"engine-a": 5, "engine-b": 2})
    assert worst_wait_percent([ENGINE, ENGINE.replace("1.2345", "0.5")]) == 120
    assert worst_wait_percent([ENGINE.replace("1.2345", "NaN")]) == worst_wait_percent([]) == 0


@pytest.mark.parametrize("page", ["", "<html>", "autellix_controller_programs seven\n"])
def test_a_page_that_is_none_is_told(page: str) -> None:
    with pytest.raises(Unreadable):
        controller_figures(page)


@pytest.mark.parametrize(("value", "shown"), [(0.4, 0), (1, 1), (99.6, 100), (123.4, 120), (98765, 99000)])
def test_two_digits_count(value: float, shown: int) -> None:
    assert rounded(value) == shown


async def test_status_and_deletion_costs_follow_the_programs() -> None:
    found = api(pod("controller", "controller"), pod("engine-a", "engine"), pod("engine-b", "engine"))
    pages = Pages(**{"engine-a": ENGINE})
    assert await keeper(found, pages).refresh(KEY)
    assert programs(found) == {"live": 7, "worstWaitRatioPercent": 120}
    assert (cost(found, "engine-a"), cost(found, "engine-b"), cost(found, "controller")) == ("5", "2", None)
    assert ("engine-a", 8000, "key") in pages.asked
    assert ("controller", 8080, "") in pages.asked
    found.writes.clear()
    await keeper(found, pages).refresh(KEY)
    assert found.writes == [], "what has not changed is not written"


async def test_an_engine_that_knows_a_former_key_alone_is_asked_with_that() -> None:
    found = api(pod("controller", "controller"), pod("engine-a", "engine"), pod("engine-b", "engine"))
    pages = Pages(**{"engine-a": ENGINE, "engine-b": ENGINE.replace("1.2345", "7.5")})
    pages.keys = {"engine-a": "key", "engine-b": "old"}
    await keeper(found, pages).refresh(KEY)
    assert programs(found) == {"live": 7, "worstWaitRatioPercent": 750}
    assert [key for name, _, key in pages.asked if name == "engine-a"] == ["key"]


async def test_an_engine_that_lost_its_programs_is_the_next_to_go() -> None:
    kept = {DELETION_COST: "9"}
    found = api(
        pod("controller", "controller"),
        pod("engine-c", "engine", annotations=kept),
        pod("engine-d", "engine", ready=False),
    )
    await keeper(found, Pages()).refresh(KEY)
    assert (cost(found, "engine-c"), cost(found, "engine-d")) == ("0", None)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (NotFound(404, "NotFound", "pods engine-a not found"), False),
        (Conflict(409, "Conflict", "uid mismatch: no existing object was found"), False),
        (Refused(403, "Forbidden", "policy: hands off"), True),
    ],
)
async def test_a_pod_that_takes_no_cost_keeps_neither_the_others_nor_the_status_from_theirs(
    error: ApiError, raised: bool
) -> None:
    found = api(pod("controller", "controller"), pod("engine-a", "engine"), pod("engine-b", "engine"))
    original = found.apply

    async def apply(resource: Resource, manifest: Json) -> Json:
        if manifest["metadata"]["name"] == "engine-a":
            raise error
        return await original(resource, manifest)

    found.apply = apply  # type: ignore[method-assign]
    with pytest.raises(Refused, match="hands off") if raised else nullcontext():
        await keeper(found, Pages()).refresh(KEY)
    assert (cost(found, "engine-a"), cost(found, "engine-b")) == (None, "2")
    assert programs(found) == {"live": 7, "worstWaitRatioPercent": 0}


async def test_without_an_answer_nothing_is_said_and_costs_stay() -> None:
    kept = {DELETION_COST: "9"}
    found = api(pod("controller", "controller"), pod("engine-a", "engine", annotations=kept))
    await keeper(found, Pages()).refresh(KEY)
    assert programs(found) == {"live": 7, "worstWaitRatioPercent": 0}
    found = api(pod("controller", "controller", ready=False), pod("engine-a", "engine", annotations=kept))
    await keeper(found, Pages()).refresh(KEY)
    assert programs(found) is None
    assert cost(found, "engine-a") == "9"


async def test_a_second_controller_is_asked_when_the_first_tells_nonsense() -> None:
    found = api(pod("a", "controller"), pod("controller", "controller"))
    await keeper(found, Pages(a="<html>")).refresh(KEY)
    assert programs(found)["live"] == 7


def readiness(connected: bool, cause: str = "") -> bytes:
    return json.dumps({"ready": True, "table": {"loaded": True, "connected": connected, "cause": cause}}).encode()


async def test_what_controllers_say_of_the_process_table_is_in_the_status_until_none_says_anything() -> None:
    found = api(pod("controller", "controller"), pod("other", "controller"), pod("etcd", "etcd"))
    pages = Pages()
    pages.readinesses = {"controller": readiness(True), "other": readiness(False, "UNAVAILABLE")}

    def table() -> Json:
        return found.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"].get("processTable")

    await keeper(found, pages).refresh(KEY)
    assert table() == {"controllers": 2, "connected": 1, "cause": "UNAVAILABLE"}
    found.writes.clear()
    await keeper(found, pages).refresh(KEY)
    assert found.writes == [], "what has not changed is not written"
    pages.readinesses["other"] = readiness(True)
    await keeper(found, pages).refresh(KEY)
    assert table() == {"controllers": 2, "connected": 2}
    pages.readinesses = {"controller": b"<html>"}
    await keeper(found, pages).refresh(KEY)
    assert table() is None
    assert programs(found) == {"live": 7, "worstWaitRatioPercent": 0}


@pytest.mark.parametrize(("etcd", "told"), [({"managed": {}}, False), ({"endpoints": ["etcd.example:2379"]}, True)])
async def test_without_members_only_an_etcd_elsewhere_is_asked_about(etcd: Json, told: bool) -> None:
    found = api(pod("controller", "controller"))
    found.put(AUTELLIX_CLUSTER, cluster_resource({"processTable": {"etcd": etcd}}) | {"status": {"conditions": []}})
    pages = Pages()
    pages.readinesses = {"controller": readiness(True)}
    await keeper(found, pages).refresh(KEY)
    assert ("processTable" in found.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]) is told


async def test_a_cluster_that_is_gone_is_told() -> None:
    assert await keeper(MemoryApplier(), Pages()).refresh(KEY) is False


async def test_each_cluster_is_looked_at_once_a_period_until_it_is_gone() -> None:
    looked: list[Key] = []

    async def refresh(key: Key) -> bool:
        looked.append(key)
        if len(looked) == 1:
            raise RuntimeError("defect")
        return len(looked) < 3

    loop = FiguresLoop(refresh, 0.01, lambda: 0.0, asyncio.get_running_loop().time)
    for _ in range(5):
        loop.add(KEY)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        while len(looked) < 3:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    assert len(looked) == 3


async def test_however_much_happens_to_a_cluster_it_is_not_looked_at_earlier() -> None:
    looked: list[Key] = []

    async def refresh(key: Key) -> bool:
        looked.append(key)
        return True

    loop = FiguresLoop(refresh, 1000, lambda: 0.0, asyncio.get_running_loop().time)
    loop.add(KEY)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        while not looked:
            await asyncio.sleep(0.01)
    for _ in range(5):
        loop.add(KEY)
        await asyncio.sleep(0.01)
    task.cancel()
    assert looked == [KEY]


async def test_an_error_is_told_once_and_again_after_it_was_over(caplog: pytest.LogCaptureFixture) -> None:
    answers = ["no such field", "no such field", None, "no such field", "forbidden"]

    async def refresh(key: Key) -> bool:
        answer = answers.pop(0)
        if answer is not None:
            raise ApiError(500, "InternalError", answer)
        return True

    loop = FiguresLoop(refresh, 0.01, lambda: 0.0, asyncio.get_running_loop().time)
    loop.add(KEY)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        while answers:
            await asyncio.sleep(0.01)
    task.cancel()
    told = [record.getMessage().rpartition(": ")[2] for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["no such field", "no such field", "forbidden"]
