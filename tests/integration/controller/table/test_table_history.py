"""Several replicas under random faults: every pin is explained by one order of moments, and no service is lost."""

import pytest

from autellix_controller.table import store
from support.etcd import Etcd
from support.table_run import blind, check_history


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_pins_are_linearizable_and_service_is_conserved_under_faults(etcd: Etcd, seed: int) -> None:
    await check_history(etcd, seed=seed, seconds=6.0)


async def test_the_judge_of_histories_finds_a_put_without_compare(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_unchanged", blind)
    with pytest.raises(AssertionError, match="not explained"):
        await check_history(etcd, seed=1, seconds=1.5)
