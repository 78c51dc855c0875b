"""The table in etcd keeps the contract."""

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from autellix_controller.table import store
from support.etcd import Etcd
from support.table_contract import ExpiryContract, TableContract
from support.table_machine import run_table_machine
from support.table_run import blind
from support.tables import WORLDS, World


class EtcdWorlds:
    timeout_seconds: ClassVar[float]

    @pytest.fixture
    async def world(self, shared_etcd: Etcd) -> AsyncIterator[World]:
        world = WORLDS["etcd"](self.timeout_seconds, shared_etcd)
        yield world
        await world.end()


class TestEtcdTable(EtcdWorlds, TableContract):
    pass


class TestEtcdExpiry(EtcdWorlds, ExpiryContract):
    pass


def test_it_agrees_with_the_model(shared_etcd: Etcd) -> None:
    run_table_machine(lambda: WORLDS["etcd"](60.0, shared_etcd), examples=30)


def test_the_machine_finds_a_put_without_compare(shared_etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_unchanged", blind)
    with pytest.raises(AssertionError):
        run_table_machine(lambda: WORLDS["etcd"](60.0, shared_etcd), examples=30, shrink=False)
