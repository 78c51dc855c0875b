"""Several replicas under random faults: every pin is explained by one order of moments, and no service is lost."""

import pytest

from support.etcd import Etcd
from support.table_run import check_history


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_pins_are_linearizable_and_service_is_conserved_under_faults(etcd: Etcd, seed: int) -> None:
    await check_history(etcd, seed=seed, seconds=6.0)
