"""When a table writes, and how far it is behind."""

import asyncio
import random

from autellix_controller.table.rounds import Rounds
from autellix_controller.table.timings import Timings
from support.running_controller import eventually


async def test_it_says_for_how_long_the_oldest_update_has_waited() -> None:
    now, failure = 100.0, "etcd is away"
    written: list[float] = []
    may_write = asyncio.Semaphore(0)
    rounds = Rounds(Timings(linger=0.001, retry=0.002), what="it", rng=random.Random(1), clock=lambda: now)

    async def write() -> str | None:
        await may_write.acquire()
        written.append(now)
        return failure or None

    running = asyncio.create_task(rounds.run(write, ended="over"))
    try:
        assert rounds.oldest_seconds == 0
        rounds.wake()
        now = 103.0
        rounds.wake()
        assert rounds.oldest_seconds == 3, "the first counts"
        may_write.release()
        await eventually(lambda: len(written) == 1, "it was tried")
        now = 110.0
        assert rounds.oldest_seconds == 10, "what could not be written waits on"
        failure = ""
        may_write.release()
        await eventually(lambda: len(written) == 2 and rounds.oldest_seconds == 0, "all is written")
        rounds.wake()
        await asyncio.sleep(0.05)  # the next round has begun, and does not get on
        now = 111.0
        rounds.wake()
        now = 112.0
        assert rounds.oldest_seconds == 2, "what is being written is not written"
        may_write.release()
        await eventually(lambda: rounds.oldest_seconds == 1, "what came meanwhile waits for the next round")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
