"""Any traffic, with real vLLM objects: nothing is lost, repeated or charged wrongly, whatever arrives and goes when."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_engine.policy import POLICIES
from autellix_wire.context import ProgramContext
from support.model_free import make_request
from support.scheduler_bench import MakeBench

arrivals = st.fixed_dictionaries(
    {
        "program": st.sampled_from([None, "p", "q", "r"]),
        "service_ms": st.sampled_from([0.0, 50.0, 200.0, 5_000.0]),
        "prompt": st.integers(1, 120),
        "output": st.integers(1, 25),
        "pause": st.integers(0, 6),
        "abort_after": st.one_of(st.none(), st.integers(0, 15)),
    }
)


@pytest.mark.parametrize("depth", [1, 2], ids=["sync", "async"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(
    traffic=st.lists(arrivals, min_size=1, max_size=12),
    blocks=st.sampled_from([13, 24, 500]),
    min_run=st.sampled_from([0, 30]),
    preemptions=st.integers(0, 3),
    period=st.sampled_from([1, 5]),
)
@settings(max_examples=12, deadline=None)
def test_every_request_gets_each_of_its_tokens_once(
    make_bench: MakeBench,
    policy: str,
    depth: int,
    traffic: list[dict[str, Any]],
    blocks: int,
    min_run: int,
    preemptions: int,
    period: int,
) -> None:
    bench = make_bench(
        depth=depth,
        slots=3,
        blocks=blocks,
        token_budget=64,
        scheduling={
            "policy": policy,
            "queue_bounds_ms": [30, 100],
            "starvation_ratio": 3,
            "starvation_floor_ms": 50,
            "min_run_ms": min_run,
            "max_preemptions_per_step": preemptions,
            "steps_per_decision": period,
        },
    )
    aborts: dict[int, list[str]] = {}
    step = 0

    def run(steps: int) -> None:
        nonlocal step
        for _ in range(steps):
            for name in aborts.pop(step, []):
                bench.driver.abort(name)
            bench.steps(1)
            step += 1

    for i, shape in enumerate(traffic):
        name = f"{i}"
        context = None
        if shape["program"]:
            context = ProgramContext(program=shape["program"], call=name, service_ms=shape["service_ms"])
        bench.add(make_request(name, prompt=shape["prompt"], output=shape["output"], context=context, arrival=float(i)))
        if shape["abort_after"] is not None:
            aborts.setdefault(step + shape["abort_after"], []).append(name)
        run(shape["pause"])
    run(1 + max(aborts, default=step) - step)
    bench.run()

    assert len(bench.core) == 0
    records = {record.call: record for record in bench.publisher.records}
    assert sorted(records) == sorted(f"{i}" for i in range(len(traffic)))
    assert len(bench.publisher.records) == len(traffic)
    for name, shape in zip(records, (traffic[int(name)] for name in records), strict=True):
        record, tokens = records[name], bench.driver.tokens.get(name, [])
        whole = list(range(shape["prompt"], shape["prompt"] + shape["output"]))
        assert tokens == whole[: len(tokens)]
        if record.outcome == "finished":
            assert tokens == whole
        assert record.service_ms + record.wait_ms <= bench.clock.seconds * 1000 + 1e-6
    own = [record for record in bench.publisher.records if not record.program.startswith("call:")]
    for program in {record.program for record in own}:
        mine = [record for record in own if record.program == program]
        assert mine[-1].totals.service_ms == pytest.approx(sum(record.service_ms for record in mine))
        assert mine[-1].totals.calls == len(mine)
