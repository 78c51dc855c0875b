"""KV swapping in a real engine with a real (tiny) model: calls resume, programs come back, and the bytes are right.

Transfers run on threads beside the model, late and in any order that the rules allow.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingConnectorMetadata
from vllm.v1.kv_offload.base import TransferResult

from autellix_engine.swap.metrics import CONTEXT, RESUMED
from autellix_engine.swap.prefetch import Prefetcher
from autellix_engine.swap.settings import InvalidSwapSettings, SwapSettings
from autellix_engine.swap.tier.programs import Standing
from autellix_engine.swap.worker import SwapWorker
from autellix_kernels.errors import DriverError
from autellix_kernels.plan import Direction
from autellix_wire.context import ProgramContext
from autellix_wire.records import CallRecord
from support.model_free import ManualClock
from support.swap_engine import SwapEngineBench, prompt
from support.swap_traffic import Storm, visits

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

BLOCKS = 100
programs = (f"program {i}" for i in itertools.count())


@pytest.fixture(scope="module", params=[False, True], ids=["without prefix cache", "with prefix cache"])
def engine(request: pytest.FixtureRequest) -> Iterator[SwapEngineBench]:
    with SwapEngineBench(
        slots=2,
        blocks=BLOCKS,
        settings=SwapSettings(size="64Mi"),
        enable_prefix_caching=request.param,
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left(engine: SwapEngineBench) -> Iterator[None]:
    """Every test begins with nothing anywhere and leaves nothing in use: blocks of the GPU, slots, jobs, requests."""
    engine.resize_pool(1_024)
    engine.forget_everything()
    yield
    engine.check_rest()


def served(name: str) -> ProgramContext:
    """A program that has been served a lot."""
    return ProgramContext(program=next(programs), call=name, service_ms=9_000_000.0)


def fresh(name: str) -> ProgramContext:
    return ProgramContext(program=next(programs), call=name)


def alone(engine: SwapEngineBench, *names: str, length: int = 1_300, output: int = 200) -> dict[str, list[int]]:
    outputs = {name: engine.alone(name, prompt(name, length), output) for name in names}
    engine.forget_everything()
    return outputs


def preempt_both(engine: SwapEngineBench, *, length: int = 1_300, output: int = 200, newcomers: int = 1_350) -> None:
    """Two calls run, and two better ones take their slots and nearly all of the GPU's blocks.

    They have so much before them that this pays at any speed of the machine, even if nothing of them was kept.
    """
    for name in "ab":
        engine.add(name, prompt(name, length), output, served(name))
    engine.run(until=lambda: len(engine.outputs.get("b", [])) >= 30)
    for name in "xy":
        engine.add(name, prompt(name, newcomers), 8, fresh(name))


def test_a_preempted_call_resumes_from_host_memory(engine: SwapEngineBench) -> None:
    undisturbed = alone(engine, "a", "b")
    preempt_both(engine)
    engine.run()
    assert {name: engine.outputs[name] for name in "ab"} == undisturbed
    for name in "ab":
        record = engine.record(name)
        assert record.preemptions == 1
        assert record.recomputed_tokens < 32, "less than a block"
        assert engine.scheduled[name] == 1_499 + record.recomputed_tokens
        assert record.swapped_bytes >= 41 * engine.connector.manager.block_bytes
    assert engine.share_computed_again(RESUMED) < 0.02


def test_over_many_random_preemptions_and_aborts_outputs_stay_the_same(engine: SwapEngineBench) -> None:
    storm = Storm(engine, seed=1)
    storm.run(preemptions=30)
    assert storm.compared >= 2
    assert engine.share_computed_again(RESUMED) < 0.02
    assert engine.tier.counts["refused_room"] == 0


def test_three_times_more_live_programs_than_gpu_blocks_start_from_what_they_had(engine: SwapEngineBench) -> None:
    names = [f"live {i}" for i in range(12)]
    visits(engine, names, rounds=3, first=750, more=40, output=10)
    assert sum(len(program.blocks) for name in names if (program := engine.tier.program(name))) > 3 * BLOCKS
    assert engine.share_computed_again(CONTEXT) == 0, "of whole blocks"
    for name in names:
        for turn in (1, 2):
            record = engine.record(f"{name} {turn}")
            known = 750 + 10 + 50 * (turn - 1)
            assert record.cached_tokens > 0.95 * known
            assert record.host_tokens <= record.cached_tokens


def test_with_a_smaller_pool_the_share_degrades_smoothly(engine: SwapEngineBench) -> None:
    names = [f"live {i}" for i in range(6)]
    again: list[float] = []
    for slots in (6 * 30, 6 * 20, 6 * 10):
        engine.resize_pool(slots)
        engine.forget_everything()
        visits(engine, names, rounds=4, first=750, more=40, output=4)
        again.append(engine.share_computed_again(CONTEXT))
        engine.check_rest()
    assert again[0] == 0
    if engine.scheduler.kv_cache_manager.enable_caching:
        assert again == sorted(again)
    else:
        assert 0.1 < again[1] < 0.6 < again[2] < 0.95, "about what has no room"


def test_a_program_that_ended_holds_nothing_that_a_live_one_lacks(engine: SwapEngineBench) -> None:
    engine.resize_pool(60)
    visits(engine, ["ended", "live"], rounds=1, first=900, more=0, output=10)
    engine.publisher.ended.append("ended")
    visits(engine, ["another"], rounds=1, first=900, more=0, output=10)
    engine.settle()
    assert engine.tier.program("ended") is None
    assert [len(engine.tier.program(name).blocks) for name in ("live", "another")] == [28, 28]  # type: ignore[union-attr]
    assert engine.tier.held() == {Standing.ENDED: 0, Standing.IDLE: 56, Standing.ACTIVE: 0}


def test_when_the_pool_is_exhausted_the_rest_is_computed_again_and_counted(engine: SwapEngineBench) -> None:
    undisturbed = alone(engine, "a", "b")
    engine.resize_pool(50)
    preempt_both(engine)
    engine.run()
    assert {name: engine.outputs[name] for name in "ab"} == undisturbed
    assert engine.tier.counts["refused_room"] + engine.tier.counts["evicted_active"] > 0
    assert engine.found[RESUMED, "computed_again"] > 32
    assert engine.found[RESUMED, "host"] > 0, "what had room is not computed again"


@pytest.mark.parametrize("failing", ["store", "load"])
def test_failed_transfers_are_computed_again_and_counted(
    engine: SwapEngineBench, failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = alone(engine, "a", "b")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise DriverError("a copy", 700, f"no {failing} works")

    monkeypatch.setattr(engine.worker._engine, failing, fail)
    preempt_both(engine)
    engine.run()
    assert {name: engine.outputs[name] for name in "ab"} == undisturbed
    assert engine.tier.counts[f"failed_{failing}s"] > 0
    assert engine.record("a").recomputed_tokens > 0 or engine.record("b").recomputed_tokens > 0
    assert f"no {failing} works" in caplog.text


def test_an_abort_while_its_blocks_are_stored_leaves_nothing_behind(engine: SwapEngineBench) -> None:
    with engine.held():
        for name in "ab":
            engine.add(name, prompt(name, 1_300), 60, served(name))
        engine.run(until=lambda: len(engine.outputs.get("b", [])) >= 3)
        assert engine.tier.in_transfer >= 80
        engine.abort("a")
        engine.abort("b")
        engine.step()
    engine.run()
    assert {engine.record(name).outcome for name in "ab"} == {"aborted"}


def test_an_abort_while_its_blocks_are_loaded_leaves_nothing_behind(engine: SwapEngineBench) -> None:
    preempt_both(engine)
    engine.run(until=lambda: bool(engine.outputs.get("x") and engine.outputs.get("y")))
    with engine.held(Direction.LOAD):
        engine.run(until=lambda: any(not job.is_store for job in engine.connector._jobs.values()))
        engine.abort("a")
        engine.abort("b")
        for _ in range(3):
            engine.step()
        assert engine.gpu_blocks_in_use > 0, "a load still writes them"
    engine.run()
    assert {engine.record(name).outcome for name in "ab"} == {"aborted"}


def test_a_block_given_away_before_it_was_stored_would_show(
    engine: SwapEngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = alone(engine, "a", "b")
    monkeypatch.setattr(SwapWorker, "wait", lambda worker, job_ids: None)
    with engine.held(Direction.STORE):
        preempt_both(engine)
        engine.run(until=lambda: bool(engine.outputs.get("x") and engine.outputs.get("y")))
    engine.run()
    assert {name: engine.outputs[name] for name in "ab"} != undisturbed


def test_a_call_that_runs_before_its_load_has_ended_would_show(
    engine: SwapEngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = alone(engine, "a", "b")
    told: set[int] = set()

    def all_too_soon(worker: SwapWorker) -> list[TransferResult]:
        results = [result for result in finished(worker) if result.job_id not in told]
        loads = [job for job, transfer in worker._jobs.values() if transfer.direction is Direction.LOAD]
        results += [TransferResult(job, True, 0, 0.0) for job in loads if job not in told]
        told.update(loads)
        return results

    finished = SwapWorker.get_finished
    preempt_both(engine)
    engine.run(until=lambda: bool(engine.outputs.get("x") and engine.outputs.get("y")))
    monkeypatch.setattr(SwapWorker, "get_finished", all_too_soon)
    with engine.held(Direction.LOAD):
        engine.run(until=lambda: {"a", "b"} <= engine.finish_reasons.keys())
    engine.worker._engine.wait(range(10**6))
    engine.settle()
    assert told
    assert {name: engine.outputs[name] for name in "ab"} != undisturbed


def test_a_block_stored_before_it_was_computed_would_show(
    engine: SwapEngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = alone(engine, "a", "b")
    side = engine.connector_worker
    handle = side.handle_preemptions

    def all_too_soon(metadata: OffloadingConnectorMetadata) -> None:
        handle(metadata)
        for job_id, job in metadata.store_jobs.items():
            side.worker.submit_store(job_id, job.src_spec, job.dst_spec)
        side.worker.wait(set(metadata.store_jobs))
        metadata.store_jobs.clear()

    monkeypatch.setattr(side, "handle_preemptions", all_too_soon)
    preempt_both(engine)
    engine.run()
    assert {name: engine.outputs[name] for name in "ab"} != undisturbed


def test_a_call_that_could_not_come_back_cheaply_keeps_its_slot(engine: SwapEngineBench) -> None:
    """Both slots are taken by calls with few steps to go, and moving and computing are made dear."""
    prices = engine.connector.prices
    for mean in (prices.seconds_per_byte, prices.seconds_per_token):
        mean.value = 1.0
    prices.step_seconds.value, prices.output_tokens.value = 0.001, 10.0
    for name in "ab":
        engine.add(name, prompt(name, 300), 40, served(name))
    engine.run(until=lambda: len(engine.outputs.get("b", [])) >= 20)
    engine.add("better", prompt("better", 100), 4, fresh("better"))
    engine.run()
    assert [engine.record(name).preemptions for name in "ab"] == [0, 0]
    for mean in (prices.seconds_per_byte, prices.seconds_per_token, prices.step_seconds, prices.output_tokens):
        mean.value = None


def test_a_step_begins_no_more_loads_and_stores_than_its_bytes_allow(engine: SwapEngineBench) -> None:
    undisturbed = alone(engine, "a", "b")
    manager = engine.connector.manager
    plenty, manager.blocks_per_step = manager.blocks_per_step, 10
    manager._budget = 10
    stored: list[int] = []
    submit = engine.worker.submit_store

    def count(job_id: int, source: Any, target: Any) -> bool:
        stored.append(len(target.slots))
        return submit(job_id, source, target)

    engine.worker.__dict__["submit_store"] = count
    preempt_both(engine)
    engine.run()
    engine.settle()
    del engine.worker.submit_store
    manager.blocks_per_step = plenty
    assert {name: engine.outputs[name] for name in "ab"} == undisturbed
    assert max(stored) == 10
    assert sum(stored) >= 2 * 42, "what was put off comes later"


def test_a_context_is_brought_back_before_its_call(engine: SwapEngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = engine.scheduler.kv_cache_manager.block_pool
    if not pool.enable_caching:
        connector = engine.scheduler.connector
        monkeypatch.setattr(connector, "_settings", SwapSettings(size="64Mi", prefetch_seconds=1))
        with pytest.raises(InvalidSwapSettings, match=r"^swap\.prefetch_seconds: needs vLLM's prefix cache"):
            connector.bind_gpu_block_pool(pool)
        return
    clock = ManualClock()
    manager = engine.connector.manager
    monkeypatch.setattr(manager, "_clock", clock)
    prefetcher = Prefetcher(manager, pool, seconds=1, share_percent=50, clock=clock)
    monkeypatch.setattr(engine.connector, "_prefetcher", prefetcher)

    def visit(name: str, turn: int, length: int) -> CallRecord:
        call = f"{name} {turn}"
        engine.add(call, prompt(name, length), 4, ProgramContext(program=name, call=call))
        engine.run()
        engine.settle()
        return engine.record(call)

    visit("regular", 0, 700)
    clock.seconds = 10.0
    visit("regular", 1, 900)  # due at 20 s
    for i in range(3):
        visit(f"other {i}", 0, 1_300)  # take all blocks of the GPU
    key = engine.tier.context(engine.tier.program("regular"))[-1]  # type: ignore[arg-type]
    assert pool.cached_block_hash_to_block.get_one_block(key) is None
    clock.seconds = 18.0
    visit("too early", 0, 40)
    assert pool.cached_block_hash_to_block.get_one_block(key) is None
    clock.seconds = 19.5
    visit("in time", 0, 40)
    assert pool.cached_block_hash_to_block.get_one_block(key) is not None
    assert engine.gpu_blocks_in_use == 0, "whoever needs them may take them"
    clock.seconds = 20.0
    record = visit("regular", 2, 1_000)
    assert record.cached_tokens >= 896
    assert record.host_tokens == 0, "it was on the GPU already"
