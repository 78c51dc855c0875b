"""The price inside of a plan: who gives way, and for whom it was paid."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from autellix_engine.policy import Call, Core, SchedulingSettings
from autellix_engine.swap.tier.price import Prices
from autellix_engine.swap.weighing import Weighing, observe_step

SETTINGS = SchedulingSettings(queue_bounds_ms=(100,), min_run_ms=0)


def prices(step: float) -> Prices:
    made = Prices(bytes_per_token=1)
    made.seconds_per_token.add(0.001)
    made.step_seconds.add(step)
    made.output_tokens.add(100)
    return made


def request(generated: int, most: int = 1_000, computed: int = 1_000) -> Any:
    return SimpleNamespace(num_output_tokens=generated, max_tokens=most, num_computed_tokens=computed)


def always(call: Call, victims: Sequence[Call]) -> bool:
    return True


def plan(step: float, *, waiting: int = 1, free_slots: int = 0, fits: Any = always) -> tuple[int, int]:
    """Two served calls run, each of 1,000 tokens (1 s to compute) and with 50 steps to go; fresh ones wait. Returns
    admissions and victims."""
    core = Core(SETTINGS)
    for key in "ab":
        core.arrive(key, now=0, program=key, service_ms=1_000)
        core.start(key, 0)
    for i in range(waiting):
        core.arrive(f"w{i}", now=1, program=f"w{i}")
    requests = {key: request(950) for key in "ab"}
    weigh = Weighing(prices(step), requests, requests.values(), lambda r: 0, fits)
    made = core.plan(2, free_slots, weigh)
    return len(made.admissions), len(made.victims)


def test_a_call_gives_way_where_it_pays() -> None:
    assert plan(step=0.1) == (1, 1), "5 s of waiting against 1 s of computing"


def test_nobody_gives_way_where_it_does_not_pay() -> None:
    assert plan(step=0.01) == (0, 0), "0.5 s of waiting against 1 s of computing"


def test_a_free_slot_costs_nothing() -> None:
    assert plan(step=0.01, free_slots=1) == (1, 0)
    assert plan(step=0.01, free_slots=1, waiting=2) == (1, 0)


def test_each_call_pays_for_its_own_victim_only() -> None:
    assert plan(step=0.03, waiting=2) == (2, 2), "1.5 s of waiting against 1 s each"


def test_two_victims_for_one_call_cost_both() -> None:
    def both(call: Call, victims: Sequence[Call]) -> bool:
        return len(victims) == 2

    assert plan(step=0.03, fits=both) == (0, 0)
    assert plan(step=0.05, fits=both) == (1, 2)


def test_steps_say_what_tokens_cost() -> None:
    made = Prices(bytes_per_token=1)

    def step(tokens: dict[str, int], seconds: float) -> None:
        observe_step(
            made, SimpleNamespace(num_scheduled_tokens=tokens, total_num_scheduled_tokens=sum(tokens.values())), seconds
        )

    step({}, 1.0)
    step({"a": 1, "b": 1}, 0.01)
    step({"a": 1, "b": 3}, 5.0)  # too few prompt tokens to say anything
    step({"a": 1, "b": 101}, 0.11)
    assert made.step_seconds.value == 0.01
    assert made.seconds_per_token.value == 0.001
