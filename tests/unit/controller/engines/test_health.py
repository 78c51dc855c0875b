import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.engines.health import OUTLIER_FAILURES, Health, Seen
from autellix_controller.engines.load import STALE_SECONDS, ReportedLoad, used

WELL = Health().after(Seen.PROBED)


def seen(health: Health, *what: Seen) -> Health:
    for one in what:
        health = health.after(one)
    return health


def test_a_new_engine_gets_nothing_before_its_first_good_probe() -> None:
    assert not Health().reachable
    assert not seen(Health(), Seen.ANSWERED).reachable
    assert WELL.reachable


def test_failures_count_in_a_row_only() -> None:
    assert not seen(WELL, Seen.FAILED, Seen.FAILED, Seen.ANSWERED, Seen.FAILED, Seen.FAILED).outlier
    assert seen(WELL, *[Seen.FAILED] * OUTLIER_FAILURES).outlier


def test_a_refused_connection_counts_at_once() -> None:
    assert not seen(WELL, Seen.UNREACHABLE).reachable


@given(st.lists(st.sampled_from([Seen.ANSWERED, Seen.FAILED, Seen.UNREACHABLE]), max_size=10))
def test_only_a_probe_brings_an_engine_back(what: list[Seen]) -> None:
    outlier = seen(WELL, *[Seen.FAILED] * OUTLIER_FAILURES)
    assert seen(outlier, *what).outlier
    assert not seen(WELL, Seen.UNREACHABLE, *what).reachable
    assert seen(outlier, *what, Seen.PROBED).well


def test_an_outlier_comes_back_on_trial() -> None:
    back = seen(WELL, *[Seen.FAILED] * OUTLIER_FAILURES, Seen.PROBED)
    assert back.well
    assert back.after(Seen.FAILED).outlier
    assert back.after(Seen.ANSWERED) == WELL


@pytest.mark.parametrize(
    ("own", "reported", "now", "expected"),
    [
        (3, None, 0.0, 3),
        (3, ReportedLoad(calls=3, own=3, at=0.0), 0.0, 3),
        (3, ReportedLoad(calls=10, own=3, at=0.0), 0.0, 10),
        (5, ReportedLoad(calls=10, own=3, at=0.0), 0.5, 12),
        (0, ReportedLoad(calls=2, own=3, at=0.0), 0.5, 0),
        (1, ReportedLoad(calls=10, own=0, at=0.0), STALE_SECONDS + 0.1, 1),
    ],
)
def test_load_is_our_own_calls_and_what_others_had_at_the_last_report(
    own: int, reported: ReportedLoad | None, now: float, expected: int
) -> None:
    assert used(own, reported, now) == expected
