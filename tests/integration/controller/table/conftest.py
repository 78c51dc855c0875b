"""One etcd for all tests that leave it alone; tests that break it start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.etcd import Etcd, running_etcd


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that tests share, each under a prefix of its own. Not to be stopped."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd of this test's own."""
    with running_etcd(tmp_path / "etcd") as etcd:
        yield etcd
