"""Deadlines of calls, many behind one timer."""

import asyncio

import pytest

from autellix_controller.gateway.deadlines import Deadline, DeadlineTimer


async def test_a_deadline_that_is_moved_on_ends_nothing_until_it_is_reached() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def work(deadline: Deadline) -> None:
        deadline.move(began + 0.8)
        await asyncio.sleep(0.1)  # beyond the first deadline
        deadline.move(began + 0.9)
        await asyncio.sleep(30)

    deadline = DeadlineTimer().deadline(began + 0.05)
    with pytest.raises(TimeoutError), deadline:
        await work(deadline)
    assert 0.85 < loop.time() - began < 20


async def test_a_deadline_may_be_moved_nearer() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def work(deadline: Deadline) -> None:
        deadline.move(began + 0.05)
        await asyncio.sleep(30)

    deadline = DeadlineTimer().deadline(began + 60)
    with pytest.raises(TimeoutError), deadline:
        await work(deadline)
    assert loop.time() - began < 20


async def test_a_deadline_that_was_not_reached_leaves_nothing_behind() -> None:
    loop = asyncio.get_running_loop()
    with DeadlineTimer().deadline(loop.time() + 0.5):
        await asyncio.sleep(0)
    await asyncio.sleep(0.6)


async def test_each_of_many_deadlines_ends_its_own_work_in_its_own_time() -> None:
    loop = asyncio.get_running_loop()
    timer, began, ended = DeadlineTimer(), loop.time(), []

    async def work(seconds: float) -> None:
        with pytest.raises(TimeoutError), timer.deadline(began + seconds):
            await asyncio.sleep(30)
        ended.append((seconds, loop.time() - began))

    await asyncio.gather(*(work(seconds) for seconds in (0.3, 0.1, 0.2, 0.1)))
    assert [seconds for seconds, _ in ended] == [0.1, 0.1, 0.2, 0.3]
    assert all(took > seconds - 0.01 for seconds, took in ended)


async def test_a_deadline_that_was_set_later_by_hand_ends_its_work_then() -> None:
    """As it is done for every token."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def work(deadline: Deadline) -> None:
        deadline.at = began + 0.4
        await asyncio.sleep(30)

    deadline = DeadlineTimer().deadline(began + 0.1)
    with pytest.raises(TimeoutError), deadline:
        await work(deadline)
    assert 0.39 < loop.time() - began < 20
