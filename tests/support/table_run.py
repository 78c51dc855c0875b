"""Several replicas under random faults, recorded and judged."""

import asyncio
import random
import time
from collections import defaultdict
from contextlib import AsyncExitStack, suppress

from etcd3aio._protobuf import Compare

from autellix_controller.table.interface import ProcessTable, TableUnavailable
from autellix_controller.table.store import Swap
from support.etcd import Etcd
from support.table_contract import opened
from support.table_history import Pin, linearizable
from support.table_proxy import Proxy, proxy_to
from support.tables import BRIEF_TIMINGS, EtcdWorld, held, record, until

_PROGRAMS = 4


def blind(swap: Swap) -> Compare:
    """The planted bug: instead of a comparison a condition that holds whatever the key is. For ``store._unchanged``."""
    return Compare(result=Compare.GREATER, target=Compare.VERSION, key=swap.key, version=-1)


class _Run:
    """Workers that pin and account, and what they were told."""

    def __init__(self, world: EtcdWorld, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.history: dict[str, list[Pin]] = defaultdict(list)
        self.calls: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._numbers = iter(range(10**9))
        self.stopping = False

    async def work(self, table: ProcessTable, programs: list[str]) -> None:
        """Until the run stops: account for a call, move the pin, wait a little."""
        incarnation = f"engine-{next(self._numbers)}.a"
        while not self.stopping:
            program = self.chance.choice(programs)
            entry = table.get(program)
            assert entry is not None
            self.calls[program][incarnation] += 1
            table.arrived(program, self.world.now_ms())
            table.apply(
                record(entry, incarnation=incarnation, calls=self.calls[program][incarnation]), self.world.now_ms()
            )
            table.departed(program, self.world.now_ms())
            engine = f"engine-{next(self._numbers)}"
            began, returned = time.monotonic(), None
            with suppress(TableUnavailable):
                returned = (await table.pin(program, engine, expected=entry.engine)).engine
            self.history[program].append(Pin(began, time.monotonic(), entry.engine, engine, returned))
            await asyncio.sleep(self.chance.uniform(0.02, 0.08))


async def _break_things(etcd: Etcd, proxies: list[Proxy], chance: random.Random, seconds: float) -> None:
    """One fault after another; whole again afterwards."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.1, 0.4))
        proxy = chance.choice(proxies)
        match chance.choice(["kill", "pause", "cut", "hold", "hold"]):
            case "kill":
                await asyncio.to_thread(etcd.restart)
            case "pause":
                etcd.only.pause()
                await asyncio.sleep(chance.uniform(0.1, 1.3))
                etcd.only.resume()
            case "cut":
                await proxy.cut()
                await asyncio.sleep(chance.uniform(0.0, 0.5))
            case "hold":
                proxy.hold_answers()
                await asyncio.sleep(chance.uniform(0.0, 1.3))
                if chance.random() < 0.5:
                    await proxy.cut()
        await proxy.restore()


async def check_history(etcd: Etcd, *, seed: int, seconds: float) -> None:
    """Three replicas pin and account while etcd and their connections break. Raises AssertionError if a pin cannot be
    explained by one order of moments, if replicas disagree afterwards, or if service was lost or charged twice."""
    chance = random.Random(seed)
    world = EtcdWorld(etcd, 600.0, BRIEF_TIMINGS)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.end)
        proxies = [await stack.enter_async_context(proxy_to(etcd.only.endpoint)) for _ in range(3)]
        tables = [await world.replica(f"replica-{number}", proxy.url) for number, proxy in enumerate(proxies)]
        programs = [(await opened(world, tables[0], f"session-{number}")).id for number in range(_PROGRAMS)]
        await world.agree()
        run = _Run(world, chance)
        async with asyncio.TaskGroup() as workers:
            for table in tables:
                workers.create_task(run.work(table, programs))
                workers.create_task(run.work(table, programs))
            await _break_things(etcd, proxies, chance, seconds)
            run.stopping = True
        await until(lambda: all(table.health().connected for table in tables), "all are connected")
        await world.agree()
        answers = [pin for pins in run.history.values() for pin in pins]
        assert sum(pin.returned == pin.engine for pin in answers) > 20, "the run shows too little"
        for program in programs:
            entries = [held(table, program) for table in tables]
            pins = run.history[program]
            assert linearizable(pins, start=None, end=entries[0].engine), f"seed {seed}, not explained: {pins}"
            assert entries[0] == entries[1] == entries[2]
            assert {name: totals.calls for name, totals in entries[0].totals.items()} == run.calls[program]
