"""How fast and how large the process table is, in etcd and in a file. Writes build/bench/table.json.

    PYTHONPATH=tests:tests/kubernetes:bench python -m autellix_bench.table [--programs N] [--seconds S]

Client and etcd share this machine. Each figure comes with its goal; the exit status is 1 if one is missed.
"""

import argparse
import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from autellix_bench.goals import Goal, report_path, write
from autellix_controller.table import Timings, open_table
from autellix_controller.table.channel import Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.entry import ProgramEntry, program_id
from autellix_controller.table.interface import ProcessTable
from autellix_controller.table.layout import Layout, encode_program
from autellix_controller.table.store import MAX_SWAPS, EtcdStore, Swap
from autellix_wire.records import CallRecord, ProgramTotals
from support.etcd import Etcd, running_etcd

PREFIX = "/autellix/bench/table"
OWNER = "bench"
TIMEOUT_SECONDS = 1800.0
#: Programs with unwritten figures while completions are offered: enough to keep the writer busy, and few among all
#: programs, so that hardly any two completions share a write.
BACKLOG = 4096
#: Completions between two looks at the backlog.
BURST = 64
GOAL_COMPLETIONS = 10_000.0
GOAL_CATCH_UP_SECONDS = 10.0
GOAL_BYTES = 2048.0


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(process: int | None) -> float:
    """CPU time that another process has used so far."""
    if process is None:
        return 0.0
    figures = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


async def fill(url: str, count: int) -> None:
    """Writes that many programs, each with the figures of two engines."""
    members = Members([url.removeprefix("etcd://")])
    timings = Timings(call=10.0)
    store = EtcdStore(members, Contact(timings, clock=time.monotonic), timings)
    layout = Layout(PREFIX)
    lease = await store.grant(int(TIMEOUT_SECONDS))
    totals = {f"engine-{n}.{'a' * 16}": ProgramTotals(service_ms=1234.5, calls=3, prompt_tokens=9000) for n in (0, 1)}
    swaps = []
    for number in range(count):
        session = f"session-{number}"
        entry = ProgramEntry(
            id=program_id(OWNER, session),
            owner=OWNER,
            session=session,
            engine=f"engine-{number % 8}",
            path_ms=1234.5,
            wait_ms=67.8,
            totals=totals,
            created_ms=now_ms(),
            last_arrival_ms=now_ms(),
            last_completion_ms=now_ms(),
        )
        swaps.append(Swap(layout.program_key(entry.id), 0, encode_program(entry), lease))
    for start in range(0, count, MAX_SWAPS):
        await store.swap(swaps[start : start + MAX_SWAPS])
    await members.close()


@asynccontextmanager
async def replica(url: str, name: str) -> AsyncIterator[ProcessTable]:
    """A replica that has loaded the table."""
    table = open_table(url, PREFIX, name, TIMEOUT_SECONDS)
    await table.start()
    while not table.health().loaded:  # noqa: ASYNC110 - the table is asked as readiness asks it
        await asyncio.sleep(0.01)
    try:
        yield table
    finally:
        await table.close()


class Completions(msgspec.Struct, frozen=True):
    """What accounting for calls came to."""

    per_second: float
    """Accounted for and written."""
    controller_us: float
    """CPU of this process for each, microseconds, the making of the records included."""
    etcd_us: float
    """CPU of etcd for each, microseconds; 0 if there is none."""


async def complete_calls(
    table: ProcessTable, programs: list[ProgramEntry], seconds: float, etcd_process: int | None
) -> Completions:
    """Calls of random programs, arrived, recorded and departed as fast as the table writes them."""
    chance = random.Random(0)
    calls = 0
    began, cpu, etcd_cpu = time.perf_counter(), time.process_time(), cpu_seconds(etcd_process)
    while time.perf_counter() - began < seconds:
        if table.health().pending_updates >= BACKLOG:
            await asyncio.sleep(0.001)
            continue
        for _ in range(BURST):
            calls += 1
            entry, now = chance.choice(programs), now_ms()
            table.arrived(entry.id, now)
            table.apply(completion(entry, calls), now)
            table.departed(entry.id, now)
        await asyncio.sleep(0)
    await table.flush()
    return Completions(
        calls / (time.perf_counter() - began),
        (time.process_time() - cpu) / calls * 1e6,
        (cpu_seconds(etcd_process) - etcd_cpu) / calls * 1e6,
    )


async def complete_calls_in_file(programs: int, seconds: float) -> Completions:
    """The same for one replica with a SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        table = open_table(f"sqlite://{folder}/table.db", PREFIX, "one", TIMEOUT_SECONDS)
        await table.start()
        names = [f"session-{number}" for number in range(programs)]
        entries = []
        for start in range(0, programs, 1000):
            opening = (
                table.open(program_id(OWNER, name), owner=OWNER, session=name, now_ms=now_ms())
                for name in names[start : start + 1000]
            )
            entries += await asyncio.gather(*opening)
        try:
            return await complete_calls(table, entries, seconds, None)
        finally:
            await table.close()


def completion(entry: ProgramEntry, number: int) -> CallRecord:
    """The record of a program's next call."""
    return CallRecord(
        seq=number,
        engine="engine-0",
        incarnation="engine-0." + "a" * 16,
        program=entry.engine_program,
        call=str(number),
        outcome="finished",
        service_ms=1.0,
        wait_ms=1.0,
        path_ms=1234.5 + number,
        program_wait_ms=67.8,
        totals=ProgramTotals(service_ms=1234.5 + number, calls=3 + number, prompt_tokens=9000),
    )


async def measure(etcd: Etcd, programs: int, seconds: float) -> list[Goal]:
    """All that has a goal."""
    url, process = etcd.url, etcd.only.process
    assert process is not None
    await fill(url, programs)
    gc.collect()
    before = resident_bytes()
    began = time.perf_counter()
    async with replica(url, "one") as table:
        catch_up = time.perf_counter() - began
        gc.collect()
        each = (resident_bytes() - before) / programs
        entries = list(table.page(OWNER, "", programs))
        completions = await complete_calls(table, entries, seconds, process.pid)
    core_us = 1e6 / GOAL_COMPLETIONS
    alone = await complete_calls_in_file(programs, seconds)
    return [
        Goal("completions written", completions.per_second, GOAL_COMPLETIONS, " 1/s", at_least=True),
        Goal("CPU of a completion, controller", completions.controller_us, core_us, " us"),
        Goal("CPU of a completion, etcd", completions.etcd_us, core_us, " us"),
        Goal(f"catch-up of a fresh replica, {programs} programs", catch_up, GOAL_CATCH_UP_SECONDS, " s"),
        Goal("memory a program", each, GOAL_BYTES, " bytes"),
        Goal("completions written, SQLite", alone.per_second, GOAL_COMPLETIONS, " 1/s", at_least=True),
        Goal("CPU of a completion, SQLite", alone.controller_us, core_us, " us"),
    ]


def main() -> int:
    """Measures, prints and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures the process table in etcd.")
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--output", type=Path, default=report_path("table"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_etcd(Path(folder)) as etcd:
        goals = run(measure(etcd, options.programs, options.seconds))
    write(options.output, goals, {})
    return 0 if all(goal.met for goal in goals) else 1


def run(steps: Coroutine[Any, Any, list[Goal]]) -> list[Goal]:
    """Runs on the event loop that the controller uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(steps)


if __name__ == "__main__":
    sys.exit(main())
