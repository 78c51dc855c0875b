"""What a preemption costs against what it gains."""

import pytest

from autellix_engine.swap.tier.price import Context, Mean, Prices, Progress


def prices(*, byte: float = 1e-9, token: float = 1e-4, step: float = 0.02, output: float = 200) -> Prices:
    """A bus of 1 GB/s, 10,000 prompt tokens a second, 100 kB a token, steps of 20 ms."""
    made = Prices(bytes_per_token=100_000)
    for mean, value in (
        (made.seconds_per_byte, byte),
        (made.seconds_per_token, token),
        (made.step_seconds, step),
        (made.output_tokens, output),
    ):
        mean.add(value)
    return made


def test_coming_back_is_moving_what_is_kept_and_computing_the_rest() -> None:
    quick_bus = prices(byte=1e-10)
    assert quick_bus.resume_seconds(Context(10_000, 9_000)) == pytest.approx(9_000 * 1e-5 + 1_000 * 1e-4)


def test_where_computing_is_quicker_than_moving_that_is_the_price() -> None:
    assert prices(byte=1e-8).resume_seconds(Context(10_000, 10_000)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("generated", "most", "expected"),
    [(0, 1_000, 200), (150, 1_000, 150), (300, 1_000, 300), (300, 350, 50), (90, 1_000, 110)],
)
def test_the_wait_is_for_the_first_call_that_is_expected_to_end(generated: int, most: int, expected: int) -> None:
    running = [Progress(generated, most), Progress(500, 10_000)]
    assert prices().wait_seconds(running) == pytest.approx(expected * 0.02)


def test_a_call_about_to_end_keeps_its_slot_if_coming_back_takes_longer() -> None:
    victim = [Context(30_000, 30_000)]
    assert not prices().pays(victim, [Progress(195, 200)])
    assert prices().pays(victim, [Progress(195, 2_000)])


def test_what_was_never_seen_is_free() -> None:
    assert Prices(bytes_per_token=100_000).pays([Context(10_000, 0)], [Progress(199, 200)])
    assert prices().pays([Context(0, 0)], [Progress(200, 200)])
    no_call_ended = Prices(bytes_per_token=100_000)
    no_call_ended.seconds_per_token.add(1e-4)
    no_call_ended.step_seconds.add(0.02)
    assert no_call_ended.pays([Context(10_000, 0)], [Progress(0, 200)])


def test_a_mean_follows_slowly() -> None:
    mean = Mean()
    mean.add(1.0)
    mean.add(2.0)
    assert mean.value == pytest.approx(1.1)
