import asyncio

import pytest

from autellix_controller.background import SingleFlight, cancel, forever


async def test_requests_for_one_thing_share_its_work() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    go, started = asyncio.Event(), 0

    async def work() -> int:
        nonlocal started
        started += 1
        await go.wait()
        return started

    waiting = [asyncio.create_task(flights.run("k", work)) for _ in range(5)]
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert await flights.run("k", work) == 2, "what is over is not remembered"


async def test_a_caller_that_leaves_does_not_take_the_others_along() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    go = asyncio.Event()

    async def work() -> str:
        await go.wait()
        return "done"

    first, second = (asyncio.create_task(flights.run("k", work)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go.set()
    assert await second == "done"


async def test_a_failure_reaches_all_and_is_not_repeated() -> None:
    flights: SingleFlight[str, None] = SingleFlight()

    async def work() -> None:
        await asyncio.sleep(0)
        raise OSError("away")

    results = await asyncio.gather(*(flights.run("k", work) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [OSError] * 3

    async def well() -> None:
        pass

    await flights.run("k", well)


async def test_work_that_fails_by_a_defect_is_logged_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    runs = asyncio.Queue[int]()
    count = 0

    async def work() -> None:
        nonlocal count
        count += 1
        runs.put_nowait(count)
        raise RuntimeError("defect")

    task = asyncio.create_task(forever("thing", work))
    assert [await runs.get(), await runs.get()] == [1, 2]
    await cancel(task)
    assert task.cancelled()
    assert "background work failed, restarting" in caplog.text
