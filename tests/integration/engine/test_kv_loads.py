"""Requests whose KV cache is loaded from outside: they wait, hold memory, and take no precedence by that."""

from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

from autellix_wire.context import ProgramContext
from support.model_free import BLOCK, make_request
from support.scheduler_bench import Bench, MakeBench

LEVELS = {"queue_bounds_ms": [100, 1_000], "min_run_ms": 0}


class SlowStore(KVConnectorBase_V1):  # type: ignore[misc]  # vLLM is untyped to us
    """Has two blocks of every prompt whose id begins with "stored", and loads them until it is told otherwise."""

    def __init__(self) -> None:
        self.loading: set[str] = set()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return (2 * BLOCK, True) if request.request_id.startswith("stored") else (0, False)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return (0,)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            self.loading.add(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None: ...

    def wait_for_save(self) -> None: ...

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return False, None


@pytest.fixture
def bench(make: MakeBench) -> Bench:
    bench = make(scheduling=LEVELS, slots=2)
    bench.scheduler.connector = SlowStore()
    return bench


def request(name: str, *, service_ms: float = 0.0, **kwargs: Any) -> Request:
    context = ProgramContext(program=name, call=name, service_ms=service_ms)
    return make_request(name, **({"prompt": 48, "output": 4} | kwargs), context=context)


def loaded(bench: Bench, *names: str) -> None:
    """The store has loaded these."""
    bench.scheduler._update_from_kv_xfer_finished(KVConnectorOutput(finished_recving=set(names)))


def test_while_it_loads_a_call_does_not_count_as_waiting_and_nobody_gives_way_to_it(bench: Bench) -> None:
    bench.add(request("a", service_ms=5_000, output=20), request("b", service_ms=5_000, output=20))
    bench.steps(2)
    bench.add(request("stored"))  # makes one of them give way, and begins to load
    bench.steps(3)
    assert bench.scheduler.requests["stored"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    preemptions = bench.core.counts["preemptions_policy"]
    assert bench.driver.ran[-1] == {"a", "b"}, "its slot is used meanwhile"
    bench.steps(5)
    assert bench.core.counts["preemptions_policy"] == preemptions
    loaded(bench, "stored")
    bench.steps(1)
    assert "stored" in bench.driver.ran[-1], "loaded, it is a call of the best level again"
    bench.run()
    record = bench.publisher.of("stored")
    assert record.cached_tokens == 2 * BLOCK
    assert record.wait_ms == pytest.approx(0, abs=10)
    assert bench.driver.tokens["stored"] == list(range(48, 52))


def test_a_loaded_call_does_not_overtake_a_better_one(bench: Bench) -> None:
    bench.add(request("stored worse", service_ms=5_000))
    bench.steps(1)
    bench.add(request("a", output=3), request("b", output=30))
    bench.steps(1)
    bench.add(request("better", prompt=8, output=10))
    bench.steps(1)
    loaded(bench, "stored worse")
    bench.steps(2)  # a has ended: one slot is free
    assert bench.driver.ran[-1] == {"b", "better"}
    bench.run()
    assert bench.driver.tokens["stored worse"] == list(range(48, 52))


def test_a_loaded_call_goes_first_where_the_better_one_could_never_get_its_memory(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS | {"max_preemptions_per_step": 0}, slots=2, blocks=14)
    bench.scheduler.connector = SlowStore()
    bench.add(request("stored worse", service_ms=5_000, prompt=100, output=2))
    bench.steps(1)
    bench.add(request("better", prompt=200, output=2))  # all the memory there is
    loaded(bench, "stored worse")
    bench.run()
    assert [record.call for record in bench.publisher.records] == ["stored worse", "better"]


def test_a_paused_engine_still_runs_what_holds_memory(bench: Bench) -> None:
    bench.add(request("stored", service_ms=5_000))
    bench.steps(1)
    bench.add(request("b", output=30), request("c", output=30))
    bench.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    loaded(bench, "stored")
    bench.steps(1)
    assert bench.driver.ran[-1] == {"stored"}


@pytest.mark.parametrize("arrived", [False, True])
def test_a_call_can_be_aborted_while_it_loads(bench: Bench, arrived: bool) -> None:
    bench.add(request("stored"))
    bench.steps(2)
    if arrived:
        loaded(bench, "stored")
    bench.driver.abort("stored")
    bench.check()
    assert bench.publisher.of("stored").outcome == "aborted"
    if not arrived:  # its blocks are free once the load has come back
        assert "stored" in bench.scheduler.requests
        loaded(bench, "stored")
    assert "stored" not in bench.scheduler.requests
