"""A process that uses a table until it is killed, and says before and after each step what it does.

    python -m support.table_crash URL SEED

One step at a time, each as two lines of JSON on standard output: first as it begins, then again once it is done.
"""

import asyncio
import os
import random
import sys

import msgspec

from autellix_controller.table import Timings, open_table
from autellix_controller.table.entry import program_id
from support.table_contract import OWNER
from support.tables import PREFIX, record

SESSIONS = tuple(f"s{number}" for number in range(5))
NOW_MS = 1_000_000


class Step(msgspec.Struct, frozen=True):
    """What is done with one session."""

    session: str
    life: str = ""
    """Engine name of the session's present life; empty: it has ended, or was never opened."""
    engine: str | None = None
    calls: int = 0


async def use(url: str, seed: int) -> None:
    """Opens, pins, charges and ends, for ever."""
    chance = random.Random(seed)
    table = open_table(url, PREFIX, "alone", 600.0, timings=Timings(linger=0.002), clock_ms=lambda: NOW_MS)
    await table.start()
    while True:
        session = chance.choice(SESSIONS)
        program = program_id(OWNER, session)
        entry = table.get(program)
        if entry is None or entry.state == "ended":
            # Not known before: which life it will be.
            say(Step(session, life="?"))
            entry = await table.open(program, owner=OWNER, session=session, now_ms=NOW_MS)
            say(Step(session, entry.engine_program))
            continue
        match chance.choice(["pin", "charge", "charge", "end"]):
            case "pin":
                engine = f"engine-{chance.randrange(1000)}"
                step = Step(session, entry.engine_program, engine, entry.calls)
                say(step)
                await table.pin(program, engine, expected=entry.engine)
            case "charge":
                step = Step(session, entry.engine_program, entry.engine, entry.calls + 1)
                say(step)
                table.apply(record(entry, calls=entry.calls + 1), NOW_MS)
                await table.flush()
            case _:
                step = Step(session)
                say(step)
                await table.end(program)
        say(step)


def say(step: Step) -> None:
    """One line, past all buffers of this process."""
    os.write(1, msgspec.json.encode(step) + b"\n")


if __name__ == "__main__":
    asyncio.run(use(sys.argv[1], int(sys.argv[2])))
