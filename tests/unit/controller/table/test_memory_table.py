"""The table in memory keeps the contract."""

from collections.abc import AsyncIterator

import pytest

from support.table_contract import TableContract
from support.tables import WORLDS, World


class TestMemoryTable(TableContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        world = WORLDS["memory"](self.timeout_seconds, None)
        yield world
        await world.end()
