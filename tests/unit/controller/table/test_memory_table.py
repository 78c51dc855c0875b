"""The table in memory keeps the contract."""

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from autellix_controller.table.entry import ProgramEntry
from autellix_controller.table.memory import MemoryTable
from support.table_contract import AloneExpiryContract, TableContract
from support.table_machine import run_table_machine
from support.tables import WORLDS, World


class MemoryWorlds:
    timeout_seconds: ClassVar[float]

    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        world = WORLDS["memory"](self.timeout_seconds, None)
        yield world
        await world.end()


class TestMemoryTable(MemoryWorlds, TableContract):
    pass


class TestMemoryExpiry(MemoryWorlds, AloneExpiryContract):
    pass


def test_it_agrees_with_the_model() -> None:
    run_table_machine(lambda: WORLDS["memory"](60.0, None), examples=100, idle_seconds=60.0)


def test_the_machine_finds_a_pin_without_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a blind put where a compare-and-swap belongs."""
    guarded = MemoryTable.pin

    async def blind(self: MemoryTable, program: str, engine: str, *, expected: str | None) -> ProgramEntry:
        entry = self.get(program)
        return await guarded(self, program, engine, expected=entry.engine if entry is not None else expected)

    monkeypatch.setattr(MemoryTable, "pin", blind)
    with pytest.raises(AssertionError):
        run_table_machine(lambda: WORLDS["memory"](60.0, None), examples=100, shrink=False)
