"""The table in etcd keeps the contract."""

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
from etcd3aio._protobuf import Compare

from autellix_controller.table import store
from support.etcd import Etcd
from support.table_contract import ExpiryContract, TableContract
from support.table_machine import run_table_machine
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
    """The planted bug: a blind put where a compare-and-swap belongs."""
    monkeypatch.setattr(store, "_unchanged", always)
    with pytest.raises(AssertionError):
        run_table_machine(lambda: WORLDS["etcd"](60.0, shared_etcd), examples=30, shrink=False)


def always(swap: store.Swap) -> Compare:
    """A condition that holds whatever the key is."""
    return Compare(result=Compare.GREATER, target=Compare.VERSION, key=swap.key, version=-1)
