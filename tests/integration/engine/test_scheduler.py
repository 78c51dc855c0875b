"""The scheduler class: order, preemption, states, accounting. Real vLLM objects, no model."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import vllm
from vllm.lora.request import LoRARequest
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request, RequestStatus

from autellix_engine.compatibility import SINGLE, UnsupportedLayout, UnsupportedVllm
from autellix_engine.policy import InvalidSettings
from autellix_engine.scheduler import ProgramScheduler
from autellix_wire.context import ProgramContext
from support.model_free import Driver, make_request, make_scheduler, vllm_config
from support.scheduler_bench import MakeBench

LEVELS = {"queue_bounds_ms": [100, 1_000], "min_run_ms": 0}


def program(name: str, call: str | None = None, **fields: Any) -> ProgramContext:
    return ProgramContext(program=name, call=call or f"call of {name}", replica="controller-0", **fields)


def long(name: str, output: int = 60, **kwargs: Any) -> Request:
    """A call of a program that has been served a lot."""
    return make_request(name, prompt=40, output=output, context=program(name, service_ms=5_000.0), **kwargs)


def short(name: str = "short", **kwargs: Any) -> Request:
    """A call of a fresh program."""
    return make_request(name, **({"prompt": 8, "output": 4} | kwargs), context=program(name))


def assert_complete(driver: Driver, name: str, prompt: int, output: int) -> None:
    """Every position once, in order: what the request would have got uninterrupted."""
    assert driver.tokens[name] == list(range(prompt, prompt + output))


# ---- preemption


def test_a_short_call_gets_its_slot_in_the_step_after_it_arrives(make: MakeBench, depth: int) -> None:
    bench = make(depth=depth, scheduling=LEVELS)
    bench.add(long("a"), long("b"))
    bench.steps(10)
    bench.add(short())
    bench.steps(1)
    assert "short" in bench.driver.ran[-1]
    bench.run()
    assert_complete(bench.driver, "short", 8, 4)
    for name in ("a", "b"):
        assert_complete(bench.driver, name, 40, 60)
    assert bench.core.counts["preemptions_policy"] == 1


def test_the_stock_scheduler_lets_the_short_call_wait(make: MakeBench) -> None:
    """The same on the class that ours replaces: what the test above shows is not there by itself."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    scheduler = make_scheduler(AsyncScheduler, vllm_config(slots=2))
    driver = Driver(scheduler, clock=make().clock)
    for request in (long("a"), long("b")):
        scheduler.add_request(request)
    for _ in range(10):
        driver.step()
    scheduler.add_request(short())
    assert driver.run(until="short") > 40


def test_under_fcfs_nobody_gives_way(make: MakeBench) -> None:
    bench = make(scheduling={"policy": "fcfs"})
    bench.add(long("a"), long("b"))
    bench.steps(10)
    bench.add(short())
    bench.run()
    assert bench.core.counts["preemptions_policy"] == 0
    assert bench.publisher.records[-1].call == "call of short"


def test_a_victim_does_not_take_its_own_slot_back_in_the_same_step(
    make: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The better call turns out not to be admissible: the slot stays free for this step."""
    bench = make(scheduling=LEVELS)
    adapters = LoRARequest("one", 1, "/nowhere"), LoRARequest("two", 2, "/nowhere")
    for name in ("a", "b"):
        request = long(name)
        request.lora_request = adapters[0]
        bench.add(request)
    bench.steps(3)
    bench.scheduler.lora_config = type("LoRA", (), {"max_loras": 1})()
    monkeypatch.setattr(ProgramScheduler, "_can_run", lambda self, request, adapters: True)
    better = short()
    better.lora_request = adapters[1]
    bench.add(better)
    bench.steps(1)
    assert bench.core.counts["preemptions_policy"] == 1
    assert bench.driver.ran[-1] == {"a"}
    bench.steps(1)
    assert bench.driver.ran[-1] == {"a", "b"}


def test_nobody_gives_way_to_a_call_that_would_not_fit_anyway(make: MakeBench) -> None:
    bench = make(blocks=14, scheduling=LEVELS | {"max_preemptions_per_step": 1})
    bench.add(long("a", output=20), long("b", output=20))
    bench.steps(3)
    bench.add(short(prompt=200, output=1))  # 13 blocks, all there are: both would have to give way
    bench.steps(1)
    assert bench.core.counts["preemptions_policy"] == 0
    bench.run()
    assert_complete(bench.driver, "short", 200, 1)


def test_memory_is_made_free_for_a_better_call_when_slots_are(make: MakeBench) -> None:
    bench = make(slots=4, blocks=14, scheduling=LEVELS)
    bench.add(long("a", output=100), long("b", output=50))
    bench.steps(20)
    assert bench.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() < 7
    bench.add(short(prompt=100))
    bench.steps(1)
    assert "short" in bench.driver.ran[-1]
    bench.run()
    assert_complete(bench.driver, "a", 40, 100)


def test_a_cached_prompt_counts_as_fitting(make: MakeBench) -> None:
    bench = make(slots=3, blocks=14, scheduling=LEVELS)
    prompt = list(range(1, 65))
    bench.add(make_request("first", prompt=prompt, output=60, context=program("p", service_ms=5_000.0)))
    bench.steps(5)
    bench.add(make_request("second", prompt=prompt, output=4, context=program("q")))
    bench.steps(1)
    assert bench.core.counts["preemptions_policy"] == 0
    assert {"first", "second"} == bench.driver.ran[-1]
    bench.run()
    assert bench.publisher.of("call of q").cached_tokens == 48


def test_preemptions_in_a_step_are_limited(make: MakeBench) -> None:
    bench = make(slots=8, scheduling=LEVELS | {"max_preemptions_per_step": 3})
    bench.add(*(long(f"long{i}") for i in range(8)))
    bench.steps(5)
    bench.add(*(short(f"short{i}", output=20) for i in range(8)))
    for expected in (3, 6, 8, 8):
        bench.steps(1)
        assert sum(name.startswith("short") for name in bench.driver.ran[-1]) == expected


def test_a_resumed_call_is_left_alone_for_its_minimum_run(make: MakeBench) -> None:
    bench = make(slots=1, step_ms=10.0, scheduling=LEVELS | {"min_run_ms": 50})
    bench.add(long("a"))
    bench.steps(3)
    bench.add(short("first", output=1))
    bench.steps(2)  # first runs, then a resumes
    bench.add(short("second", output=1))
    bench.steps(4)
    assert all(ran == {"a"} for ran in bench.driver.ran[-4:])
    bench.steps(1)
    assert bench.driver.ran[-1] == {"second"}


def test_the_worker_takes_a_preempted_call_for_one_it_no_longer_knows(make: MakeBench) -> None:
    bench = make(slots=1, scheduling=LEVELS)
    bench.add(long("a"))
    bench.steps(3)
    bench.add(short(output=1))
    output = bench.driver.step()
    assert "a" in output.preempted_req_ids
    output = bench.driver.step()
    assert output.scheduled_cached_reqs.resumed_req_ids == {"a"}
    assert "a" in output.scheduled_cached_reqs.all_token_ids


def test_with_output_in_flight_a_victim_resumes_only_after_it_is_delivered(make: MakeBench) -> None:
    bench = make(depth=2, slots=1, scheduling=LEVELS)
    bench.add(long("a"))
    bench.steps(5)
    bench.add(short(output=1))
    bench.steps(1)
    assert bench.scheduler.requests["a"].num_stale_output_tokens > 0 or not bench.core.call("a").ready
    bench.run()
    assert_complete(bench.driver, "a", 40, 60)


def test_a_call_that_finishes_by_output_in_flight_while_it_is_preempted_ends_once(make: MakeBench) -> None:
    bench = make(depth=2, slots=1, scheduling=LEVELS)
    bench.add(long("a", output=5))
    bench.steps(5)  # the last token is in flight
    bench.add(short())
    bench.run()
    assert_complete(bench.driver, "a", 40, 5)
    assert bench.publisher.of("call of a").outcome == "finished"
    assert len(bench.publisher.records) == 2


def test_between_decisions_free_slots_are_filled_but_nobody_gives_way(make: MakeBench) -> None:
    bench = make(slots=1, scheduling=LEVELS | {"steps_per_decision": 100, "starvation_floor_ms": 30})
    bench.add(long("a", output=40), make_request("b", prompt=8, output=4, context=program("b", service_ms=5_000.0)))
    bench.steps(1)
    bench.core.arrive("sentinel", now=0, program="x")  # unknown to vLLM: only a decision would look at it
    bench.core.end("sentinel", 0)
    bench.run()
    assert bench.driver.finished.keys() == {"a", "b"}


def test_spare_calls_take_freed_slots_without_a_decision_and_the_next_slot_asks_for_one(
    make: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(slots=2, scheduling=LEVELS | {"steps_per_decision": 1_000, "spare_calls": 2})
    bench.add(*(short(f"{i}", output=3 + i) for i in range(6)))
    decisions: list[int] = []
    plan = bench.core.plan

    def counted(*args: Any) -> Any:
        decisions.append(len(bench.publisher.records))
        return plan(*args)

    monkeypatch.setattr(bench.core, "plan", counted)
    bench.run()
    assert decisions[:2] == [0, 3], "the first, and one after two calls whose slots were refilled without"
    assert all(len(ran) == 2 for ran in bench.driver.ran[:7]), "no slot stood empty"


def test_an_arrival_is_decided_on_at_once_even_with_a_long_period(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS | {"steps_per_decision": 1_000})
    bench.add(long("a"), long("b"))
    bench.steps(10)
    bench.add(short())
    bench.steps(1)
    assert "short" in bench.driver.ran[-1]


def test_a_long_prompt_of_a_worse_call_does_not_hold_up_a_better_one(make: MakeBench, depth: int) -> None:
    """It takes all tokens of a step, for ten steps."""
    bench = make(depth=depth, token_budget=100, scheduling=LEVELS)
    bench.add(make_request("huge", prompt=1_000, output=3, context=program("huge", service_ms=5_000.0)))
    bench.steps(2)
    bench.add(short(prompt=30))
    output = bench.driver.step()
    assert output.num_scheduled_tokens == {"huge": 70, "short": 30}
    bench.run()
    assert_complete(bench.driver, "huge", 1_000, 3)
    assert_complete(bench.driver, "short", 30, 4)
    assert bench.core.counts["preemptions_policy"] == 0


def test_a_long_prompt_of_an_equal_call_is_left_alone(make: MakeBench) -> None:
    bench = make(token_budget=100, scheduling=LEVELS)
    bench.add(short("first", prompt=1_000))
    bench.steps(2)
    bench.add(short(prompt=30))
    assert bench.driver.step().num_scheduled_tokens == {"first": 100}


# ---- order


def test_waiting_calls_are_served_by_level_and_inside_it_by_arrival(make: MakeBench) -> None:
    bench = make(slots=1, scheduling=LEVELS | {"max_preemptions_per_step": 0})
    bench.add(short("running", output=3))
    bench.steps(1)
    bench.add(long("old", output=1), short("new", output=1), short("newer", output=1))
    bench.run()
    assert [record.call for record in bench.publisher.records] == [
        f"call of {name}" for name in ("running", "new", "newer", "old")
    ]


def test_a_clients_priority_has_no_effect(make: MakeBench) -> None:
    bench = make(slots=1, scheduling=LEVELS)
    bench.add(short("running", output=3))
    bench.steps(1)
    bench.add(short("a", output=1, priority=5), short("b", output=1, priority=-5))
    bench.run()
    assert [record.call for record in bench.publisher.records] == ["call of running", "call of a", "call of b"]


def test_a_starving_call_overtakes_fresh_ones_in_the_queue(make: MakeBench) -> None:
    bench = make(slots=1, scheduling=LEVELS | {"starvation_ratio": 2, "starvation_floor_ms": 40})
    bench.add(make_request("old", output=1, context=program("old", service_ms=200.0, wait_ms=360.0)))
    bench.add(*(short(f"fresh{i}", output=3) for i in range(6)))
    bench.run()
    order = [record.call for record in bench.publisher.records]
    assert 1 <= order.index("call of old") <= 3  # starves 40 ms after it came
    assert bench.publisher.of("call of old").promotions == 1


def test_when_memory_runs_out_the_lowest_level_gives_way_and_in_it_the_latest(make: MakeBench) -> None:
    bench = make(slots=3, blocks=13, scheduling=LEVELS)
    bench.add(
        make_request("worst, first", prompt=40, output=60, context=program("1", service_ms=9_000.0), arrival=1.0),
        make_request("worst, last", prompt=40, output=60, context=program("2", service_ms=9_000.0), arrival=2.0),
    )
    bench.steps(1)
    bench.add(make_request("best", prompt=40, output=60, context=program("3"), arrival=3.0))
    while not bench.core.counts["preemptions_memory"]:
        bench.steps(1)
    assert {request.request_id for request in bench.scheduler.waiting} == {"worst, last"}
    bench.run()
    for name in ("worst, first", "worst, last", "best"):
        assert_complete(bench.driver, name, 40, 60)
    assert bench.publisher.of("call of 2").preemptions >= 1


# ---- everything that the stock scheduler serves


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("token_budget", [64, 8_192])
def test_long_prompts_in_chunks_with_and_without_prefix_cache(
    make: MakeBench, depth: int, prefix_caching: bool, token_budget: int
) -> None:
    bench = make(depth=depth, scheduling=LEVELS, prefix_caching=prefix_caching, token_budget=token_budget)
    bench.add(
        make_request("a", prompt=300, output=20, context=program("a", service_ms=5_000.0)),
        make_request("b", prompt=300, output=20, context=program("b", service_ms=5_000.0)),
    )
    bench.steps(7)
    bench.add(short(prompt=100, output=5))
    bench.run()
    assert_complete(bench.driver, "a", 300, 20)
    assert_complete(bench.driver, "b", 300, 20)
    assert_complete(bench.driver, "short", 100, 5)


def test_several_requests_of_one_call_each_get_a_record_and_all_count(make: MakeBench) -> None:
    """n > 1 or several prompts: vLLM makes requests with the same context of them."""
    bench = make(scheduling=LEVELS)
    bench.add(*(make_request(f"{i}", output=3, context=program("p", "one call")) for i in range(3)))
    bench.run()
    records = bench.publisher.records
    assert [record.call for record in records] == ["one call"] * 3
    assert records[-1].totals.calls == 3
    assert records[-1].totals.service_ms == sum(record.service_ms for record in records)
    assert records[-1].totals.generated_tokens == 9


def test_a_request_without_context_is_a_program_of_its_own(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(make_request("plain", output=2))
    bench.run()
    record = bench.publisher.of("plain")
    assert (record.program, record.replica, record.totals.calls) == ("call:plain", "", 1)
    assert len(bench.core.programs) == 0


def test_a_pooling_request_is_served_as_a_program_of_its_own(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(Request("embed", [1, 2, 3], None, PoolingParams(task="embed")))
    assert bench.scheduler.schedule().num_scheduled_tokens == {"embed": 3}
    bench.check()
    bench.driver.abort("embed")
    bench.check()
    assert bench.publisher.of("embed").prompt_tokens == 3


@pytest.mark.parametrize(
    "xargs",
    [
        {"autellix_program": "p"},
        {"autellix_program": "p", "autellix_call": "c", "autellix_service_ms": -1.0},
        {"autellix_program": "p", "autellix_call": "c", "autellix_wait_ms": "long"},
        {"autellix_program": "p" * 300, "autellix_call": "c"},
        {"autellix_program": ["p"], "autellix_call": "c"},
    ],
)
def test_a_malformed_context_is_counted_logged_once_and_served_without(
    make: MakeBench, caplog: pytest.LogCaptureFixture, xargs: dict[str, object]
) -> None:
    bench = make(scheduling=LEVELS)
    with caplog.at_level(logging.WARNING, "vllm.autellix"):
        bench.add(*(make_request(f"{i}", output=1, xargs=xargs) for i in range(3)))
    bench.run()
    assert len([message for message in caplog.messages if "malformed program context" in message]) == 1
    assert {record.program for record in bench.publisher.records} == {"call:0", "call:1", "call:2"}
    assert sum(bench.publisher.reports[-1][1]["malformed_contexts"].values()) == 3


def test_nobody_gives_way_to_a_call_whose_grammar_is_not_ready(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(long("a"), long("b"))
    bench.steps(3)
    grammar: Future[object] = Future()
    waiting = short(structured_outputs=StructuredOutputsParams(regex="a+"))
    waiting.structured_output_request.grammar = grammar
    bench.add(waiting)
    bench.steps(5)
    assert bench.core.counts["preemptions_policy"] == 0
    grammar.set_exception(ValueError("does not compile"))
    bench.steps(3)
    assert bench.core.counts["preemptions_policy"] == 0
    bench.run()  # a slot falls free: vLLM finds the fault
    record = bench.publisher.of("call of short")
    assert (record.outcome, record.wait_ms) == ("failed", 0.0)


def test_nobody_gives_way_to_a_call_whose_adapter_has_no_room(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.scheduler.lora_config = type("LoRA", (), {"max_loras": 1})()
    adapters = [LoRARequest(f"adapter{i}", i, "/nowhere") for i in (1, 2)]
    running = [long("a"), long("b")]
    for request in running:
        request.lora_request = adapters[0]
    bench.add(*running)
    bench.steps(3)
    other = short("other")
    other.lora_request = adapters[1]
    bench.add(other)
    bench.steps(5)
    assert bench.core.counts["preemptions_policy"] == 0
    bench.run()
    assert_complete(bench.driver, "other", 8, 4)


def test_calls_whose_adapter_has_no_room_cost_one_look_at_the_running_ones_a_step(make: MakeBench) -> None:
    class Counted(list[Request]):
        looks = 0

        def __iter__(self) -> Iterator[Request]:
            self.looks += 1
            return super().__iter__()

    bench = make(scheduling=LEVELS)
    bench.scheduler.lora_config = type("LoRA", (), {"max_loras": 1})()
    for name, adapter in [("a", 1), *((f"other{i}", 2) for i in range(50))]:
        request = long(name)
        request.lora_request = LoRARequest(f"adapter{adapter}", adapter, "/nowhere")
        bench.add(request)
        bench.steps(name == "a")
    bench.scheduler.running = Counted(bench.scheduler.running)
    bench.steps(1)
    assert bench.scheduler.running.looks < 20


def test_resetting_the_cache_preempts_and_resumes_everything(make: MakeBench, depth: int) -> None:
    bench = make(depth=depth, scheduling=LEVELS)
    bench.add(long("a"), short())
    bench.steps(3)
    bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    bench.check()
    bench.run()
    assert bench.driver.finished.keys() == {"a", "short"}


def test_a_paused_engine_decides_nothing(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(long("a"), long("b"))
    bench.steps(3)
    bench.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    bench.add(short())
    bench.steps(3)
    assert bench.driver.ran[-1] == {"a", "b"}
    bench.scheduler.set_pause_state(PauseState.UNPAUSED)
    bench.steps(1)
    assert "short" in bench.driver.ran[-1]


def test_a_streaming_session_waits_for_input_without_counting_as_waiting(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    first = make_request("session", prompt=8, output=2, context=program("p"))
    first.resumable = True
    bench.add(first)
    bench.steps(3)
    assert bench.scheduler.requests["session"].status == RequestStatus.WAITING_FOR_STREAMING_REQ
    assert bench.core.call("session").ready is False
    bench.steps(5)
    more = make_request("session", prompt=4, output=2)
    more.resumable = True
    bench.add(more)
    bench.steps(3)
    bench.scheduler.finish_requests("session", RequestStatus.FINISHED_ABORTED)
    bench.check()
    record = bench.publisher.of("call of p")
    assert (record.wait_ms, record.preemptions) == (0.0, 0)
    assert record.service_ms == pytest.approx(40.0)


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_streaming_session_loses_nothing_whenever_a_better_call_comes(
    make: MakeBench, depth: int, moment: int
) -> None:
    """vLLM forgets a session that is preempted while the last output of its turn is in flight."""
    bench = make(depth=depth, slots=2, scheduling=LEVELS)
    session = make_request("session", prompt=40, output=4, context=program("session", service_ms=9_000.0))
    session.resumable = True
    bench.add(long("a", output=30), session)
    bench.steps(moment)
    bench.add(short())
    bench.steps(10)
    assert session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    more = make_request("session", prompt=4, output=2)
    more.resumable = True
    bench.add(more)
    bench.steps(6)
    assert len(bench.driver.tokens["session"]) == 6
    assert session.num_tokens >= 40 + 3 + 4 + 2
    bench.scheduler.finish_requests("session", RequestStatus.FINISHED_ABORTED)
    bench.run()
    assert_complete(bench.driver, "short", 8, 4)
    assert_complete(bench.driver, "a", 40, 30)


# ---- ends


def test_an_abort_in_any_state_ends_the_call_once(make: MakeBench, depth: int) -> None:
    bench = make(depth=depth, scheduling=LEVELS)
    bench.add(long("running"), long("preempted"))
    bench.steps(4)
    bench.add(short(output=30), long("waiting"))
    bench.steps(1)
    states = {name: bench.scheduler.requests[name].status for name in ("running", "preempted", "waiting")}
    assert set(states.values()) == {RequestStatus.RUNNING, RequestStatus.PREEMPTED, RequestStatus.WAITING}
    for name in states:
        bench.driver.abort(name)
        bench.check()
        bench.driver.abort(name)  # again: no longer there
    bench.driver.abort("never was here")
    bench.run()
    outcomes = {record.call: record.outcome for record in bench.publisher.records}
    assert outcomes == {f"call of {name}": "aborted" for name in states} | {"call of short": "finished"}
    assert len(bench.publisher.records) == 4
    assert_complete(bench.driver, "short", 8, 30)


def test_an_abort_in_the_middle_of_a_step_charges_the_time_so_far(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(short(output=30))
    bench.steps(2)
    bench.scheduler.schedule()
    bench.clock.advance_ms(7)
    bench.driver.abort("short")
    assert bench.publisher.of("call of short").service_ms == pytest.approx(27)


def test_an_abort_charges_nothing_of_a_step_in_which_the_call_does_not_run(make: MakeBench) -> None:
    """With asynchronous scheduling a call is handed over while the executor still works on the step before."""
    bench = make(depth=2, scheduling=LEVELS)
    bench.add(long("a"))
    bench.steps(3)
    bench.clock.advance_ms(500)
    bench.add(short())
    output = bench.scheduler.schedule()
    assert "short" in output.num_scheduled_tokens
    bench.driver.abort("short", "a")
    assert bench.publisher.of("call of short").service_ms == 0.0
    assert bench.publisher.of("call of a").service_ms == pytest.approx(530)


def test_everything_can_be_aborted_at_once(make: MakeBench, depth: int) -> None:
    bench = make(depth=depth, scheduling=LEVELS)
    bench.add(*(long(f"{i}") for i in range(5)))
    bench.steps(3)
    bench.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    bench.check()
    assert len(bench.core) == 0
    assert {record.outcome for record in bench.publisher.records} == {"aborted"}
    assert bench.publisher.reports[-1][0].running == 0


def test_a_call_that_fails_is_reported_as_failed(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(short())
    bench.steps(1)
    bench.scheduler.finish_requests("short", RequestStatus.FINISHED_ERROR)
    assert bench.publisher.of("call of short").outcome == "failed"


# ---- accounting


def test_a_record_tells_what_the_call_cost(make: MakeBench) -> None:
    bench = make(slots=1, step_ms=10.0, scheduling=LEVELS)
    context = program("p", "c1", thread="t", service_ms=5_000.0, path_ms=3_000.0, wait_ms=70.0)
    bench.add(make_request("a", prompt=40, output=6, context=context))
    bench.steps(3)
    bench.add(short(output=2))
    bench.run()
    record = bench.publisher.of("c1")
    assert (record.engine, record.incarnation, record.seq, record.thread) == ("engine-0", "first", 2, "t")
    assert (record.program, record.replica, record.outcome, record.level) == ("p", "controller-0", "finished", 2)
    assert record.service_ms == pytest.approx(60)
    assert record.wait_ms == pytest.approx(20)
    assert (record.preemptions, record.promotions) == (1, 0)
    assert (record.prompt_tokens, record.generated_tokens) == (40, 6)
    assert record.cached_tokens == 0
    assert record.recomputed_tokens == 42 - 32  # two whole blocks were still cached
    assert record.path_ms == pytest.approx(3_060)
    assert record.program_wait_ms == pytest.approx(90)
    assert record.totals.service_ms == pytest.approx(60)
    assert (record.totals.calls, record.totals.prompt_tokens, record.totals.generated_tokens) == (1, 40, 6)


def test_overlapping_steps_are_not_charged_twice(make: MakeBench) -> None:
    bench = make(depth=2, step_ms=10.0, scheduling=LEVELS)
    bench.add(make_request("a", output=10, context=program("a")))
    bench.run()
    assert bench.publisher.of("call of a").service_ms <= bench.clock.seconds * 1000 + 1e-6
    assert bench.publisher.of("call of a").service_ms >= 90


def test_the_next_call_starts_where_its_program_stands_though_the_sender_does_not_know_yet(make: MakeBench) -> None:
    bench = make(step_ms=10.0, scheduling=LEVELS)
    bench.add(make_request("a", output=15, context=program("p", "c1")))
    bench.run()
    bench.add(make_request("b", output=1, context=program("p", "c2")))
    assert bench.core.call("b").level == 1  # 150 ms were served, the bound is 100


def test_a_program_that_ended_is_forgotten_in_the_next_step(make: MakeBench) -> None:
    bench = make(scheduling=LEVELS)
    bench.add(short("p"))
    bench.run()
    assert bench.core.programs.get("p") is not None
    bench.publisher.ended = ["p", "unknown"]
    bench.driver.step()
    assert bench.core.programs.get("p") is None


def test_a_call_after_its_program_ended_belongs_to_a_new_one(make: MakeBench) -> None:
    bench = make(step_ms=50.0, scheduling=LEVELS)
    bench.add(make_request("a", output=15, context=program("p", "first life")))
    bench.run()
    bench.publisher.ended = ["p"]
    bench.add(make_request("b", output=2, context=program("p", "second life")))
    assert bench.core.call("b").level == 0
    bench.run()
    assert bench.publisher.of("second life").totals.calls == 1
    assert bench.core.programs.get("p") is not None


def test_load_is_reported_when_the_engine_becomes_busy_or_idle_and_else_twice_a_second(make: MakeBench) -> None:
    bench = make(slots=1, step_ms=10.0, scheduling=LEVELS)
    bench.add(long("a", output=100), long("b", output=1))
    bench.steps(1)
    assert [(load.running, load.waiting) for load, _ in bench.publisher.reports] == [(1, 1)]
    load, state = bench.publisher.reports[0]
    assert load.waiting_by_level == (0, 0, 1)
    assert load.tokens_in_flight == 40
    assert 0 < load.kv_usage_percent < 100
    assert state["settings"]["policy"] == "plas"
    bench.steps(48)
    assert len(bench.publisher.reports) == 1
    bench.steps(2)
    assert len(bench.publisher.reports) == 2
    bench.run()
    assert bench.publisher.reports[-1][0].running == 0


def test_reports_carry_the_figures_of_the_scheduler(make: MakeBench) -> None:
    bench = make(slots=1, scheduling=LEVELS | {"starvation_ratio": 2, "starvation_floor_ms": 40})
    bench.add(long("a"))
    bench.steps(3)
    bench.add(short(output=8))  # in the place of a
    bench.steps(1)
    bench.add(make_request("old", output=1, context=program("old", service_ms=200.0, wait_ms=360.0)))
    bench.run()
    figures = bench.publisher.figures
    assert (figures.preemptions_policy, figures.preemptions_memory, figures.promotions) == (1, 0, 1)
    assert figures.bound_breaches == 0
    assert sum(figures.decisions) > 10
    bench.add(long("b", output=200), long("c"))
    bench.steps(60)
    figures = bench.publisher.figures
    assert figures.running_by_level == (0, 0, 1)
    assert figures.runnable_programs == 2
    assert figures.worst_ratio > 0.05  # c has waited for half a second, its program was served for five


def test_an_idle_engine_forgets_ended_programs_when_it_is_asked_whether_it_has_work(make: MakeBench) -> None:
    """vLLM asks before it goes to sleep, and whenever it is woken."""
    bench = make(scheduling=LEVELS)
    bench.add(short("p"))
    bench.run()
    bench.publisher.ended = ["p"]
    assert not bench.scheduler.has_requests()
    assert bench.core.programs.get("p") is None
    assert bench.publisher.reports[-1][1]["programs"] == 0


def test_shutting_down_closes_the_channel(make: MakeBench) -> None:
    bench = make()
    bench.scheduler.shutdown()
    assert bench.publisher.closed


# ---- start


def test_another_version_of_vllm_is_refused_with_a_sentence(make: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.33.0")
    with pytest.raises(UnsupportedVllm, match=r"supports vLLM 0\.32\.0 only, and this is vLLM 0\.33\.0"):
        make()


def test_a_local_build_of_the_supported_version_is_accepted(make: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.32.0+cpu")
    make()


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_more_than_one_of_what_must_be_one_stops_the_start(name: str) -> None:
    config = vllm_config()
    setattr(config.parallel_config, name, 2)
    with pytest.raises(UnsupportedLayout, match=rf"{name.strip('_').replace('_', ' ')} of 1, not 2.*Run more engines"):
        make_scheduler(ProgramScheduler, config)


def test_wrong_settings_stop_the_start(make: MakeBench) -> None:
    with pytest.raises(InvalidSettings, match="queue_bounds_ms"):
        make(scheduling={"queue_bounds_ms": [2, 1]})


def test_the_active_settings_are_logged_once_where_vllm_logs(make: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vllm.autellix"):
        make(scheduling=LEVELS)
    assert [message for message in caplog.messages if '"policy":"plas"' in message] == [caplog.messages[-1]]


def test_vllm_finds_the_class_by_the_name_that_is_documented() -> None:
    from vllm.utils.import_utils import resolve_obj_by_qualname

    assert resolve_obj_by_qualname("autellix_engine.scheduler.ProgramScheduler") is ProgramScheduler
