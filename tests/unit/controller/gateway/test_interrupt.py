import asyncio

import pytest

from autellix_controller.gateway.interrupt import Interruptible


class Gone(Exception):
    pass


async def test_an_interruption_becomes_its_error() -> None:
    work = Interruptible()
    asyncio.get_running_loop().call_soon(lambda: work.interrupt(Gone()))
    with pytest.raises(Gone), work:
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

    with pytest.raises(Gone), work:
        await body()
    assert cleaned


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def body() -> None:
        with Interruptible():
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_inside_does_not_mistake_an_interruption_for_its_own() -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    work = Interruptible()
    asyncio.get_running_loop().call_soon(lambda: work.interrupt(Gone()))
    with pytest.raises(Gone), work:
        await in_time()


async def test_only_the_first_interruption_counts_and_none_after_the_end() -> None:
    work = Interruptible()
    work.interrupt(Gone())  # not entered yet: nothing to end
    with work:
        await asyncio.sleep(0)
    work.interrupt(Gone())
    await asyncio.sleep(0)
