"""The table in etcd keeps the contract."""

from collections.abc import AsyncIterator

import pytest

from support.etcd import Etcd
from support.table_contract import TableContract
from support.table_machine import run_table_machine
from support.tables import WORLDS, World


class TestEtcdTable(TableContract):
    @pytest.fixture
    async def world(self, shared_etcd: Etcd) -> AsyncIterator[World]:
        world = WORLDS["etcd"](self.timeout_seconds, shared_etcd)
        yield world
        await world.end()


def test_it_agrees_with_the_model(shared_etcd: Etcd) -> None:
    run_table_machine(lambda: WORLDS["etcd"](60.0, shared_etcd), examples=30)
