"""The process table for longer than the integration tests take: `make soak-table`."""

from pathlib import Path

import pytest

from support.etcd import running_etcd
from support.table_machine import run_table_machine
from support.table_outage import check_traffic_goes_on
from support.table_run import check_history
from support.tables import WORLDS


@pytest.mark.parametrize("seed", range(100, 112))
async def test_pins_are_linearizable_and_service_is_conserved_under_faults(tmp_path: Path, seed: int) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        await check_history(etcd, seed=seed, seconds=15.0)


@pytest.mark.parametrize("outage", ["killed", "silent"])
async def test_traffic_goes_on_while_etcd_is_away_for_half_a_minute(tmp_path: Path, outage: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        await check_traffic_goes_on(etcd, outage, seconds=30.0)


@pytest.mark.parametrize("name", WORLDS)
def test_every_table_agrees_with_the_model(tmp_path: Path, name: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        run_table_machine(lambda: WORLDS[name](60.0, etcd), examples=200)
