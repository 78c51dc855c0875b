"""Hundreds of random preemptions of an engine that swaps: `make soak-swap`."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from autellix_engine.swap.metrics import RESUMED
from autellix_engine.swap.settings import SwapSettings
from autellix_kernels.errors import DriverError
from autellix_kernels.transfers import Transfer
from support.swap_engine import SwapEngineBench
from support.swap_traffic import Storm

PREEMPTIONS = int(os.environ.get("AUTELLIX_SOAK_PREEMPTIONS", "300"))
"""In each case."""

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module", params=[False, True], ids=["without prefix cache", "with prefix cache"])
def engine(request: pytest.FixtureRequest) -> Iterator[SwapEngineBench]:
    with SwapEngineBench(
        slots=2, blocks=100, settings=SwapSettings(size="128Mi"), enable_prefix_caching=request.param
    ) as running:
        yield running


@dataclass(frozen=True)
class Case:
    """Slots of the pool, and the share of transfers that fail."""

    slots: int
    failing: float = 0.0


CASES = {
    "enough room": Case(2_048),
    "too little room": Case(150),
    "transfers that fail": Case(2_048, failing=0.1),
}


@pytest.mark.parametrize("name", CASES)
def test_hundreds_of_random_preemptions(
    engine: SwapEngineBench, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"{name}: {line}", flush=True)

    case = CASES[name]
    engine.resize_pool(case.slots)
    storm = Storm(engine, seed=len(name), long_calls=6)
    chance = random.Random(len(name))

    def now_and_then(transfer: Callable[..., Transfer]) -> Callable[..., Transfer]:
        def failing(*args: object, **kwargs: object) -> Transfer:
            if chance.random() < case.failing:
                raise DriverError("a copy", 700, "this one does not work")
            return transfer(*args, **kwargs)

        return failing

    swap_engine = engine.worker._engine
    monkeypatch.setattr(swap_engine, "store", now_and_then(swap_engine.store))
    monkeypatch.setattr(swap_engine, "load", now_and_then(swap_engine.load))
    storm.run(PREEMPTIONS, tell)
    share = engine.share_computed_again(RESUMED)
    counts = engine.tier.counts
    tell(f"{storm.compared} calls as undisturbed ones, {100 * share:.2f} % computed again after preemptions; {counts}")
    engine.check_rest()
    assert storm.compared > PREEMPTIONS / 30
    assert share < 0.02 or case != CASES["enough room"]
    assert (counts["failed_stores"] > 0) == (counts["failed_loads"] > 0) == (case.failing > 0)
    assert (counts["evicted_active"] + counts["refused_room"] > 0) == (name == "too little room")
