"""Long runs of KV swapping (`make soak-swap`): hundreds of random preemptions, and what the pool's size does."""

from collections.abc import Iterator

import pytest

from autellix_engine.swap.metrics import CONTEXT, RESUMED
from autellix_engine.swap.settings import SwapSettings
from support.swap_engine import SwapEngineBench
from support.swap_traffic import Storm, visits

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module", params=[False, True], ids=["without prefix cache", "with prefix cache"])
def engine(request: pytest.FixtureRequest) -> Iterator[SwapEngineBench]:
    with SwapEngineBench(
        slots=2, blocks=100, settings=SwapSettings(size="128Mi"), enable_prefix_caching=request.param
    ) as running:
        yield running


@pytest.mark.parametrize("slots", [2_048, 150], ids=["enough room", "too little room"])
def test_hundreds_of_random_preemptions(
    engine: SwapEngineBench, slots: int, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.resize_pool(slots)
    storm = Storm(engine, seed=slots, long_calls=6)
    storm.run(preemptions=300)
    share = engine.share_computed_again(RESUMED)
    engine.check_rest()
    with capsys.disabled():
        print(f"\n{slots} slots: {storm.compared} calls compared, {100 * share:.2f} % computed again after preemptions")
    assert share < 0.02 or slots < 2_048


def test_the_share_by_size_of_the_pool(engine: SwapEngineBench, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"live {i}" for i in range(12)]
    shares: dict[int, float] = {}
    for percent in (100, 75, 50, 25, 10):
        engine.resize_pool(12 * 30 * percent // 100)
        engine.forget_everything()
        visits(engine, names, rounds=5, first=750, more=40, output=4)
        shares[percent] = engine.share_computed_again(CONTEXT)
        engine.check_rest()
    with capsys.disabled():
        told = ", ".join(f"{percent} %: {100 * share:.0f} %" for percent, share in shares.items())
        print(f"\nknown context computed again, by share of the contexts that the pool holds: {told}")
    assert shares[100] == 0
    assert shares[75] <= shares[50] <= shares[10]
