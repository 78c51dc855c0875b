"""The queue of keys and the workers on it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from autellix_operator.api.names import Key
from autellix_operator.kube.applier import ApiError, Conflict
from autellix_operator.metrics import Metrics
from autellix_operator.reconcile import Readiness, Result
from autellix_operator.workers import Pace, ReferenceIndex, Worker
from autellix_operator.workqueue import WorkQueue

A, B = Key("space", "a"), Key("space", "b")


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue(lambda: asyncio.get_running_loop().time())


async def soon(awaitable: Awaitable[Key]) -> Key:
    return await asyncio.wait_for(awaitable, 5)


async def nothing(queue: WorkQueue) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.05)


async def test_a_key_added_twice_is_got_once(queue: WorkQueue) -> None:
    queue.add(A)
    queue.add(A)
    assert await soon(queue.get()) == A
    queue.done(A)
    await nothing(queue)


async def test_a_key_is_with_one_worker_at_a_time_and_due_again_afterwards(queue: WorkQueue) -> None:
    queue.add(A)
    await soon(queue.get())
    queue.add(A)
    queue.add(B)
    assert await soon(queue.get()) == B
    await nothing(queue)
    queue.done(A)
    assert await soon(queue.get()) == A


async def test_the_earliest_time_counts(queue: WorkQueue) -> None:
    queue.add(A, 60)
    queue.add(A, 0.01)
    queue.add(A, 60)
    assert await soon(queue.get()) == A


async def test_a_waiting_worker_notices_an_earlier_key(queue: WorkQueue) -> None:
    queue.add(A, 60)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(B)
    assert await soon(waiting) == B


async def test_depth_counts_what_is_due_and_waits(queue: WorkQueue) -> None:
    queue.add(A)
    queue.add(B, 60)
    assert queue.depth == 1
    await queue.get()
    assert queue.depth == 0
    assert queue.longest_active >= 0


def test_retries_back_off_to_a_limit_and_resyncs_spread() -> None:
    pace = Pace(resync=600)
    pauses = [pace.retry(failures, 1.0) for failures in range(1, 200)]
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert max(pauses) == 60
    assert pace.retry(1, 0.0) == 0.25
    assert 300 <= pace.next_resync(0.0) < pace.next_resync(1.0) == 600


class Harness:
    """A worker with a scripted reconcile."""

    def __init__(self, reconcile: Callable[[Key], Awaitable[Result]], first_retry: float = 0.01) -> None:
        self.queue = WorkQueue(lambda: asyncio.get_running_loop().time())
        self.references = ReferenceIndex()
        self.leading = True
        self.metrics = Metrics(self.queue)
        pace = Pace(resync=600, first_retry=first_retry)
        now = asyncio.get_running_loop().time
        self.worker = Worker(self.queue, reconcile, pace, self.references, self.metrics, lambda: 0.5, now, self.leads)

    async def leads(self, namespace: str) -> bool:
        return self.leading

    def outcomes(self) -> str:
        return self.metrics.text().decode()


async def test_failures_of_any_kind_are_tried_again_and_do_not_stop_the_worker() -> None:
    script: list[Exception | None] = [
        Conflict(409, "Conflict", "first"),
        ApiError(0, "Unreachable", "down"),
        RuntimeError("defect"),
        None,
    ]
    done = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        if (step := script.pop(0)) is not None:
            raise step
        done.set()
        return Result()

    harness = Harness(reconcile)
    harness.queue.add(A)
    async with asyncio.timeout(60):
        task = asyncio.create_task(harness.worker.run())
        await done.wait()
        while 'outcome="ok"' not in harness.outcomes():
            await asyncio.sleep(0.01)
    task.cancel()
    for outcome in ("conflict", "api-error", "error", "ok"):
        assert f'autellix_operator_reconciles_total{{outcome="{outcome}"}} 1.0' in harness.outcomes()


async def test_nothing_is_reconciled_where_another_operator_leads() -> None:
    async def reconcile(key: Key) -> Result:
        raise AssertionError("not ours")

    harness = Harness(reconcile)
    harness.leading = False
    harness.queue.add(A)
    async with asyncio.timeout(60):
        task = asyncio.create_task(harness.worker.run())
        while 'outcome="standby"' not in harness.outcomes():
            await asyncio.sleep(0.01)
    task.cancel()
    assert harness.queue.depth == 0, "it comes back later"


async def test_one_cluster_that_fails_does_not_hold_up_another() -> None:
    done = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        if key == A:
            raise ApiError(500, "InternalError", "always")
        done.set()
        return Result()

    harness = Harness(reconcile)
    harness.queue.add(A)
    harness.queue.add(B)
    task = asyncio.create_task(harness.worker.run())
    await asyncio.wait_for(done.wait(), 60)
    task.cancel()


async def test_a_cluster_is_woken_by_the_objects_it_refers_to_until_it_is_gone() -> None:
    results = [Result(references=frozenset({("Secret", "keys")})), Result(exists=False)]
    references: list[list[Key]] = []

    async def reconcile(key: Key) -> Result:
        references.append(harness.references.clusters("space", "Secret", "keys"))
        if len(references) == 1:
            harness.queue.add(key)
        return results.pop(0)

    harness = Harness(reconcile)
    harness.queue.add(A)
    async with asyncio.timeout(60):
        task = asyncio.create_task(harness.worker.run())
        while 'outcome="gone"' not in harness.outcomes():
            await asyncio.sleep(0.01)
    task.cancel()
    assert references == [[], [A]]
    assert harness.references.clusters("space", "Secret", "keys") == []
    assert harness.references.clusters("other", "Secret", "keys") == []


async def test_a_cluster_that_is_not_ready_is_told_with_its_reason_until_it_is_gone_or_another_operators() -> None:
    results = [
        Result(readiness=Readiness(False, "CrashLoop")),
        Result(),
        Result(readiness=Readiness(True, "Available")),
    ]

    async def reconcile(key: Key) -> Result:
        return results.pop(0) if results else Result(exists=False)

    harness = Harness(reconcile)

    def told() -> list[str]:
        lines = harness.outcomes().splitlines()
        return [each for each in lines if each.startswith("autellix_operator_cluster_ready{")]

    async def work(outcome: str, count: int) -> None:
        harness.queue.add(A)
        while f'outcome="{outcome}"}} {count}.0' not in harness.outcomes():
            await asyncio.sleep(0.01)

    labels = f'cluster="{A.name}",cluster_namespace="{A.namespace}",reason'
    async with asyncio.timeout(60):
        task = asyncio.create_task(harness.worker.run())
        await work("ok", 1)
        assert told() == [f'autellix_operator_cluster_ready{{{labels}="CrashLoop"}} 0.0']
        await work("ok", 2)
        assert told() == [f'autellix_operator_cluster_ready{{{labels}="CrashLoop"}} 0.0'], "nothing new is known"
        await work("ok", 3)
        assert told() == [f'autellix_operator_cluster_ready{{{labels}="Available"}} 1.0']
        harness.leading = False
        await work("standby", 1)
        assert told() == []
        harness.leading = True
        results.append(Result(readiness=Readiness(True, "Available")))
        await work("ok", 4)
        await work("gone", 1)
        assert told() == []
    task.cancel()
