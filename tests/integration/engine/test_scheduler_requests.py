"""The scheduler class: every kind of request that the stock scheduler serves, and how they end. Real vLLM objects, no
model."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from vllm.lora.request import LoRARequest
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request, RequestStatus

from support.model_free import make_request
from support.scheduler_bench import MakeBench
from support.scheduler_calls import LEVELS, assert_complete, long, program, short

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
