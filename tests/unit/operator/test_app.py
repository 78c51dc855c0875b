"""What stops the operator's start, and how it is told."""

import json
import socket
from pathlib import Path

import pytest
from kubernetes.aio.config import kube_config

from autellix_operator.app import StartError, run
from autellix_operator.settings import Settings


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
