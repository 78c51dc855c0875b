import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from autellix_controller.background import Backoff
from autellix_controller.engines.endpointslices import (
    REVISION_LABEL,
    EndpointSliceDiscovery,
    WatchExpired,
    endpoints_of,
)
from autellix_controller.engines.engine import Endpoint
from support.running_controller import eventually


def entry(pod: str | None, address: str = "10.0.0.1", **conditions: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": [address], "conditions": conditions}
    if pod:
        found["targetRef"] = {"kind": "Pod", "name": pod}
    return found


def slice_of(*entries: dict[str, Any], name: str = "s1", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": "1"},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}],
        "endpoints": list(entries),
        **fields,
    }


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"ready": True}, True),
        ({}, True),
        ({"ready": False}, None),
        ({"ready": False, "terminating": True, "serving": True}, False),
        ({"ready": True, "terminating": True}, False),
    ],
)
def test_ready_pods_get_calls_and_terminating_ones_stay_known(
    conditions: dict[str, Any], expected: bool | None
) -> None:
    found = endpoints_of([slice_of(entry("pod-1", **conditions))])
    assert [endpoint.accepts for endpoint in found] == ([] if expected is None else [expected])


def test_engines_are_called_after_their_pods_and_sorted() -> None:
    found = endpoints_of([slice_of(entry("b", "10.0.0.2"), entry("a", "10.0.0.1"))])
    assert found == [Endpoint("a", "http://10.0.0.1:8000"), Endpoint("b", "http://10.0.0.2:8000")]


def test_an_address_without_a_pod_is_called_after_itself() -> None:
    assert endpoints_of([slice_of(entry(None))]) == [Endpoint("10.0.0.1", "http://10.0.0.1:8000")]


@pytest.mark.parametrize(
    ("labels", "outdated"),
    [
        ({}, {"demo-engine-6d5f7c9bb8-x7k2p": False, "demo-engine-7b9c5d-6d5f7": False}),
        ({REVISION_LABEL: "6d5f7c9bb8"}, {"demo-engine-6d5f7c9bb8-x7k2p": False, "demo-engine-7b9c5d-6d5f7": True}),
    ],
)
def test_engines_of_another_revision_than_the_newest_are_about_to_go(
    labels: dict[str, str], outdated: dict[str, bool]
) -> None:
    metadata = {"name": "s1", "labels": {"kubernetes.io/service-name": "demo-engine", **labels}}
    found = endpoints_of([slice_of(*map(entry, outdated), metadata=metadata)])
    assert {endpoint.name: endpoint.outdated for endpoint in found} == outdated


def test_ipv6_addresses_stand_in_brackets() -> None:
    (found,) = endpoints_of([slice_of(entry("a", "fd00::1"), addressType="IPv6")])
    assert found.url == "http://[fd00::1]:8000"


def test_an_endpoint_in_two_slices_accepts_if_either_says_so() -> None:
    gone, there = entry("a", terminating=True, ready=False), entry("a")
    for slices in ([slice_of(gone), slice_of(there)], [slice_of(there), slice_of(gone)]):
        assert [endpoint.accepts for endpoint in endpoints_of(slices)] == [True]


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ([{"name": "metrics", "port": 1}, {"name": "http", "port": 2}], 2),
        ([{"name": "", "port": 3}], 3),
        ([{"port": 4}], 4),
        ([{"name": "x", "port": 1}, {"name": "y", "port": 2}], None),
        ([], None),
        (None, None),
    ],
)
def test_the_port_is_the_one_named_http_or_the_only_one(ports: Any, port: int | None) -> None:
    found = endpoints_of([slice_of(entry("a"), ports=ports)])
    assert [endpoint.url for endpoint in found] == ([] if port is None else [f"http://10.0.0.1:{port}"])


def test_a_slice_without_endpoints_is_no_error() -> None:
    assert endpoints_of([slice_of(endpoints=None)]) == []


class Source:
    """A scripted API server: lists in turn, and a queue of watch events for each watch."""

    def __init__(self, *lists: Sequence[Mapping[str, Any]] | Exception) -> None:
        self.lists = list(lists)
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.watched_from: list[str] = []

    async def list(self) -> Mapping[str, Any]:
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        return {"metadata": {"resourceVersion": "10"}, "items": found}

    async def watch(self, resource_version: str) -> AsyncIterator[Mapping[str, Any]]:
        self.watched_from.append(resource_version)
        while (event := await self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event


def change(kind: str, item: dict[str, Any], version: str) -> dict[str, Any]:
    return {"type": kind, "object": {**item, "metadata": {**item["metadata"], "resourceVersion": version}}}


async def test_the_list_is_kept_up_to_date_and_resumed() -> None:
    source = Source([slice_of(entry("a"))], [slice_of(entry("z"))])
    published: list[list[str]] = []
    discovery = EndpointSliceDiscovery(source, Backoff(0.001, 0.002))
    task = asyncio.create_task(discovery.run(lambda found: published.append([one.name for one in found])))
    steps: list[tuple[Any, list[str]]] = [
        (change("MODIFIED", slice_of(entry("a"), entry("b", "10.0.0.2")), "11"), ["a", "b"]),
        (change("ADDED", slice_of(entry("c", "10.0.0.3"), name="s2"), "12"), ["a", "b", "c"]),
        (change("DELETED", slice_of(name="s1"), "13"), ["c"]),
    ]
    for event, expected in steps:
        source.events.put_nowait(event)
        await eventually(lambda expected=expected: published[-1:] == [expected], f"{expected} is known")  # type: ignore[misc]
    # A bookmark moves the version without a change, the end of a watch and an error resume from it.
    source.events.put_nowait({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}})
    source.events.put_nowait(None)
    source.events.put_nowait(OSError("cut"))
    await eventually(lambda: source.watched_from == ["10", "20", "20"], "the watch resumed twice")
    # A version that is gone means: list again.
    source.events.put_nowait(WatchExpired())
    await eventually(lambda: published[-1:] == [["z"]], "the list was read again")
    source.lists.append([slice_of(entry("y"))])
    source.events.put_nowait({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
    await eventually(lambda: published[-1:] == [["y"]], "the list was read again after an error event")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Hasty:
    """An API server that ends every watch at once, or says that every version is gone."""

    def __init__(self, *, expired: bool) -> None:
        self.expired, self.watches = expired, 0

    async def list(self) -> Mapping[str, Any]:
        return {"metadata": {"resourceVersion": "10"}, "items": []}

    async def watch(self, resource_version: str) -> AsyncIterator[Mapping[str, Any]]:
        self.watches += 1
        await asyncio.sleep(0)
        if self.expired:
            raise WatchExpired
        nothing: tuple[Mapping[str, Any], ...] = ()
        for event in nothing:
            yield event


@pytest.mark.parametrize("expired", [False, True])
async def test_an_api_server_whose_watches_end_at_once_is_not_asked_without_a_pause(expired: bool) -> None:
    source = Hasty(expired=expired)
    task = asyncio.create_task(EndpointSliceDiscovery(source, Backoff(60.0, 60.0)).run(lambda _: None))
    await eventually(lambda: source.watches > 0, "it watches")
    for _ in range(100):
        await asyncio.sleep(0)
    assert source.watches == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_api_server_that_is_away_is_asked_again_and_the_engines_stand() -> None:
    source = Source(OSError("refused"), RuntimeError("500"), [slice_of(entry("a"))])
    published: list[int] = []
    discovery = EndpointSliceDiscovery(source, Backoff(0.001, 0.002))
    task = asyncio.create_task(discovery.run(lambda found: published.append(len(found))))
    await eventually(lambda: published == [1], "the list was read in the end")
    source.events.put_nowait({"type": "ERROR", "object": {"code": 500, "reason": "Internal", "message": "x"}})
    await eventually(lambda: len(source.watched_from) == 2, "the watch was opened again")
    assert published == [1]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
