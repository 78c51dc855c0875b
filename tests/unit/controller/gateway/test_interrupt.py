import asyncio

import pytest

from autellix_controller.gateway.interrupt import Deadline, Interruptible


class Gone(Exception):
    pass


async def test_an_interruption_becomes_its_error() -> None:
    work = Interruptible()
    asyncio.get_running_loop().call_soon(lambda: work.interrupt(Gone()))
    with pytest.raises(Gone):
        async with work:
            await asyncio.Event().wait()
    await asyncio.sleep(0)  # no cancellation is left over


async def test_the_body_can_clean_up() -> None:
    work, cleaned = Interruptible(), []
    asyncio.get_running_loop().call_soon(lambda: work.interrupt(Gone()))

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(Gone):
        async with work:
            await body()
    assert cleaned


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def body() -> None:
        async with Interruptible():
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_inside_does_not_mistake_an_interruption_for_its_own() -> None:
    work = Interruptible()
    asyncio.get_running_loop().call_soon(lambda: work.interrupt(Gone()))
    with pytest.raises(Gone):
        async with work, asyncio.timeout(5):
            await asyncio.Event().wait()


async def test_only_the_first_interruption_counts_and_none_after_the_end() -> None:
    work = Interruptible()
    work.interrupt(Gone())  # not entered yet: nothing to end
    async with work:
        await asyncio.sleep(0)
    work.interrupt(Gone())
    await asyncio.sleep(0)


async def test_a_deadline_that_is_moved_on_ends_nothing_until_it_is_reached() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def work(deadline: Deadline) -> None:
        deadline.move(began + 0.8)
        await asyncio.sleep(0.1)  # beyond the first deadline
        deadline.move(began + 0.9)
        await asyncio.sleep(30)

    deadline = Deadline(began + 0.05)
    with pytest.raises(TimeoutError):
        async with deadline:
            await work(deadline)
    assert 0.85 < loop.time() - began < 20


async def test_a_deadline_may_be_moved_nearer() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def work(deadline: Deadline) -> None:
        deadline.move(began + 0.05)
        await asyncio.sleep(30)

    deadline = Deadline(began + 60)
    with pytest.raises(TimeoutError):
        async with deadline:
            await work(deadline)
    assert loop.time() - began < 20


async def test_a_deadline_that_was_not_reached_leaves_nothing_behind() -> None:
    loop = asyncio.get_running_loop()
    async with Deadline(loop.time() + 0.5):
        await asyncio.sleep(0)
    await asyncio.sleep(0.6)
