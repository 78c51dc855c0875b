"""The table in memory keeps the contract."""

from collections.abc import AsyncIterator

import pytest

from support.table_contract import TableContract
from support.table_machine import run_table_machine
from support.tables import WORLDS, World


class TestMemoryTable(TableContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        world = WORLDS["memory"](self.timeout_seconds, None)
        yield world
        await world.end()


def test_it_agrees_with_the_model() -> None:
    run_table_machine(lambda: WORLDS["memory"](60.0, None), examples=100)
