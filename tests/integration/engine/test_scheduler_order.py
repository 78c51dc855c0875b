"""The scheduler class: who runs, who gives way, and in which order. Real vLLM objects, no model."""

from typing import Any

import pytest
from vllm.lora.request import LoRARequest

from autellix_engine.scheduler import ProgramScheduler
from support.model_free import Driver, make_request, make_scheduler, vllm_config
from support.scheduler_bench import MakeBench
from support.scheduler_calls import LEVELS, assert_complete, long, program, short

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
