"""What stops the operator's start, and how it is told."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from kubernetes.aio.config import kube_config

from autellix_operator.app import StartError, check_access, run
from autellix_operator.kube.applier import ApiError, NotFound, Object, Refused, Resource
from autellix_operator.settings import Settings
from support.memory_applier import MemoryApplier


def settings(listen: str) -> Settings:
    return Settings(engine_image="e", controller_image="c", etcd_image="d", http_listen=listen)


@pytest.fixture(autouse=True)
def outside_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


async def test_a_kubeconfig_that_cannot_be_read_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path))
    with pytest.raises(StartError, match=r"kubeconfig: .*Is a directory"):
        await run(settings("127.0.0.1:1234"))


async def test_an_address_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text(
        json.dumps(
            {
                "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "a", "user": {}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "current-context": "a",
            }
        )
    )
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=f"cannot listen on {address}: .*address already in use"):
            await run(settings(address))


class Namespaces(MemoryApplier):
    """An API in which some namespaces cannot be read."""

    def __init__(self, **errors: ApiError) -> None:
        super().__init__()
        self._errors = errors

    async def list(self, resource: Resource, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        if error := self._errors.get(namespace):
            raise error
        return await super().list(resource, namespace, labels)


def forbidden() -> ApiError:
    return Refused(403, "Forbidden", "autellixclusters is forbidden")


async def test_a_namespace_that_is_gone_is_told_and_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    await check_access(Namespaces(b=forbidden()), ["a", "b", "c"])
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "not serving namespace b before the next start: autellixclusters is forbidden"
    ]


async def test_an_operator_that_could_serve_no_namespace_does_not_start() -> None:
    with pytest.raises(StartError, match="cannot list AutellixClusters in namespace a: autellixclusters is forbidden"):
        await check_access(Namespaces(a=forbidden(), b=forbidden()), ["a", "b"])
    with pytest.raises(StartError, match="cannot list AutellixClusters in namespace default: "):
        await check_access(Namespaces(default=forbidden()), [])


async def test_an_api_that_does_not_answer_is_tried_by_another_start_and_no_namespace_left_out() -> None:
    with pytest.raises(StartError, match="cannot list AutellixClusters in namespace b: later"):
        await check_access(Namespaces(b=ApiError(503, "Unavailable", "later")), ["a", "b", "c"])


@pytest.mark.parametrize("namespaces", [[], ["a", "default"]])
async def test_a_missing_api_is_named_whatever_the_namespace(namespaces: list[str]) -> None:
    with pytest.raises(StartError, match="the AutellixCluster API is not there"):
        await check_access(Namespaces(default=NotFound(404, "NotFound", "no")), namespaces)
