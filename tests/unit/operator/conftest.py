from datetime import UTC, datetime

import pytest

from autellix_operator.desired.objects import Images

IMAGES = Images(engine="engine:1", controller="controller:1", etcd="etcd:1")


@pytest.fixture
def images() -> Images:
    return IMAGES


@pytest.fixture
def noon() -> datetime:
    return datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
