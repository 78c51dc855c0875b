import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from autellix_controller.tally import Tally

BOUNDS = (0.5, 1, 2.5)


@given(st.lists(st.tuples(st.sampled_from(["a", 'b"\n']), st.floats(-1, 10)), max_size=20))
def test_prometheus_reads_what_a_histogram_of_the_library_would_say(values: list[tuple[str, float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("x_seconds", "Text.", BOUNDS, labels=["path"])
    ours.register(tally)
    histogram = Histogram("x_seconds", "Text.", ["path"], buckets=BOUNDS, registry=theirs)
    for path, value in values:
        tally.of(path).add(value)
        histogram.labels(path).observe(value)
    assert generate_latest(ours).splitlines() == [
        line for line in generate_latest(theirs).splitlines() if b"_created" not in line
    ]


def test_without_labels_it_is_there_before_anything_is_counted() -> None:
    registry = CollectorRegistry()
    registry.register(Tally("x_seconds", "Text.", BOUNDS))
    assert b"x_seconds_count 0.0" in generate_latest(registry)


def test_labels_are_those_that_were_named() -> None:
    with pytest.raises(ValueError, match="x_seconds: 1 labels are needed, 2 were given"):
        Tally("x_seconds", "Text.", BOUNDS, labels=["path"]).of("a", "b")
