"""A controller with a table in a file is killed, again and again: whatever was answered is there afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from autellix_controller.table import read_programs
from support.table_contract import OWNER
from support.table_crash import SESSIONS, Step
from support.tables import PREFIX

TESTS = Path(__file__).resolve().parents[3]
ROUNDS = 5


def killed_after(lines: int, url: str, seed: int) -> list[Step]:
    """What a process said until it was killed, at some moment after so many lines."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.table_crash", url, str(seed)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS / 'kubernetes'}"},
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.readlines()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    return [msgspec.json.decode(line, type=Step) for line in said]


async def found(url: str) -> dict[str, Step]:
    """What the file holds."""
    active = {
        entry.session: Step(entry.session, entry.engine_program, entry.engine, entry.calls)
        for entry in await read_programs(url, PREFIX)
        if entry.state == "active"
    }
    assert all(entry.owner == OWNER for entry in await read_programs(url, PREFIX))
    return {session: active.get(session, Step(session)) for session in SESSIONS}


async def test_what_was_answered_survives_the_death_of_the_process(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'table.db'}"
    known = {session: Step(session) for session in SESSIONS}
    for seed in range(ROUNDS):
        said = killed_after(100 + 37 * seed, url, seed)
        done = said[1::2]
        known |= {step.session: step for step in done}
        begun = said[-1] if len(said) % 2 else None
        now = await found(url)
        for session in SESSIONS:
            if begun is not None and begun.session == session and now[session] != known[session]:
                # The step that was under way has happened although nobody was told.
                assert begun.life == "?" or now[session] == begun
            else:
                assert now[session] == known[session], f"round {seed}"
        known = now
