"""Limits of requests and tokens a minute, with a clock of our own."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.access import KeyLimits
from autellix_controller.errors import ApiError
from autellix_controller.gateway.rates import Bucket, TenantRates
from autellix_controller.gateway.usage import TokenCount


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 100), st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_no_minute_sees_more_than_twice_the_limit_and_no_long_run_more_than_the_limit(
    a_minute: int, pauses: list[float]
) -> None:
    now, taken, bucket = 0.0, [], Bucket(a_minute, 0.0)
    for pause in pauses:
        now += pause
        if bucket.wait_seconds(now, 1.0) == 0:
            bucket.spend(1.0, now)
            taken.append(now)
    assert len(taken) <= a_minute + now * a_minute / 60 + 1e-6
    assert all(sum(start <= at < start + 60 for at in taken) <= 2 * a_minute for start in taken)


@given(st.integers(1, 1000), st.floats(0, 5000), st.floats(0, 600))
def test_after_the_wait_that_was_named_a_call_may_start(a_minute: int, spent: float, pause: float) -> None:
    bucket = Bucket(a_minute, 0.0)
    bucket.spend(spent, 0.0)
    wait = bucket.wait_seconds(pause, 1.0)
    assert bucket.wait_seconds(pause + wait + 1e-6, 1.0) == pytest.approx(0, abs=1e-4)


def test_each_tenant_has_its_own_requests_a_minute() -> None:
    clock = Clock()
    limits = {"a": KeyLimits(requests_per_minute=2), "b": KeyLimits(requests_per_minute=1)}
    rates = TenantRates(lambda name: limits.get(name, KeyLimits()), clock)
    rates.admit("a")
    rates.admit("a")
    rates.admit("b")
    for _ in range(100):
        rates.admit("unlimited")
    with pytest.raises(ApiError) as refused:
        rates.admit("a")
    assert (refused.value.code.code, refused.value.param) == ("rate_limit_exceeded", "requests_per_minute")
    assert refused.value.retry_after_seconds == 30
    clock.now += 30
    rates.admit("a")


def test_tokens_are_paid_after_the_call_and_debt_before_the_next() -> None:
    clock = Clock()
    rates = TenantRates(lambda name: KeyLimits(tokens_per_minute=600), clock)
    rates.admit("a")
    rates.spend_tokens("a", 700)
    with pytest.raises(ApiError) as refused:
        rates.admit("a")
    assert (refused.value.param, refused.value.retry_after_seconds) == ("tokens_per_minute", 11)
    clock.now += 11
    rates.admit("a")


def test_a_changed_limit_counts_from_now_on_and_forgives_nothing() -> None:
    clock = Clock()
    limits = KeyLimits(requests_per_minute=100)
    rates = TenantRates(lambda name: limits, clock)
    for _ in range(100):
        rates.admit("a")
    limits = KeyLimits(requests_per_minute=60)
    with pytest.raises(ApiError):
        rates.admit("a")
    clock.now += 1.01
    rates.admit("a")
    clock.now += 3600
    limits = KeyLimits(requests_per_minute=100)
    rates.admit("a")
    limits = KeyLimits(requests_per_minute=2)
    rates.admit("a")
    rates.admit("a")
    with pytest.raises(ApiError):
        rates.admit("a")
    limits = KeyLimits()
    for _ in range(1000):
        rates.admit("a")


USAGE = b'{"usage":{"prompt_tokens":5,"details":{"cached":1},"total_tokens":12,"completion_tokens":7}}'


@given(st.lists(st.integers(0, 300), max_size=8))
def test_usage_is_found_however_an_answer_is_cut(places: list[int]) -> None:
    whole = b'{"tools":[{"usage":{"total_tokens":1}}],' + USAGE[1:-1] + b',"usage" : null}' + b" " * 100
    edges = [0, *sorted(place for place in places if place < len(whole)), len(whole)]
    count = TokenCount(prompt_tokens=3)
    for start, end in pairwise(edges):
        count.passed(whole[start:end])
    assert count.total == 12


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([USAGE], 12),
        ([b'data: {"usage":null}\n\n', b"data: " + USAGE[:30], USAGE[30:] + b"\n\ndata: [DONE]\n\n"], 12),
        ([b'{"choices":[]}'], 3),
        ([b"data: {}\n\ndata: {}\n\n", b"data: [DONE]\n\n"], 6),
        ([b'data: {"usage":{"prompt_to'], 4),
        ([b'{"usage":{"total_tokens":"x"}}'], 3),
        ([USAGE[:-1] + b',"prompt_token_ids":[' + b"1," * 10_000 + b"1]}"], 12),
        ([USAGE[:-1], *[b',"pad":"' + b"x" * 1000 + b'"'] * 10, b"}"], 12),
        ([USAGE[:-1] + b',"messages":[{"usage":{"total_tokens":1}}]}'], 12),
        ([b'data: {"usage":{"total_tokens":4}}\n\ndata: {"usage":{"total_tokens":9},"x":null}\n\n'], 9),
    ],
)
def test_tokens_are_those_of_the_usage_or_an_estimate(parts: list[bytes], total: int) -> None:
    count = TokenCount(prompt_tokens=3)
    for part in parts:
        count.passed(part)
    assert count.total == total
