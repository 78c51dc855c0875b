"""The scheduler class: what it reports of calls and of itself, and when it refuses to start. Real vLLM objects, no
model."""

import logging

import pytest
import vllm

from autellix_engine.compatibility import SINGLE, UnsupportedLayout, UnsupportedVllm
from autellix_engine.policy import InvalidSettings
from autellix_engine.scheduler import ProgramScheduler
from support.model_free import make_request, make_scheduler, vllm_config
from support.scheduler_bench import MakeBench
from support.scheduler_calls import LEVELS, long, program, short

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
