"""The program context as it travels in a request."""

import pytest

from autellix_wire.context import InvalidContext, ProgramContext

IDS = {"autellix_program": "p", "autellix_call": "c"}


def test_what_is_sent_arrives() -> None:
    context = ProgramContext(program="p", call="c", thread="t", replica="r", service_ms=1.5, path_ms=1.0, wait_ms=0.25)
    assert ProgramContext.from_xargs(context.to_xargs()) == context
    assert ProgramContext.from_xargs({"other": 1}) is None


HUGE = 10**5_000  # more digits than Python prints


@pytest.mark.parametrize(
    "value",
    [10**400, HUGE, -HUGE, -1, float("inf"), float("nan"), True, "1", "x" * 10**6],
    ids=["too large", "huge", "-huge", "negative", "infinite", "nan", "bool", "text", "long text"],
)
def test_a_figure_out_of_range_is_refused_in_a_short_line_that_names_it(value: object) -> None:
    with pytest.raises(InvalidContext, match=r"^autellix_wait_ms: ") as caught:
        ProgramContext.from_xargs(IDS | {"autellix_wait_ms": value})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", ["x" * 257, "\ud800", ["p"], 7])
def test_an_id_that_cannot_travel_on_is_refused(value: object) -> None:
    with pytest.raises(InvalidContext, match=r"^autellix_program: "):
        ProgramContext.from_xargs(IDS | {"autellix_program": value})


@pytest.mark.parametrize("missing", ["autellix_program", "autellix_call"])
def test_a_context_without_its_ids_is_refused(missing: str) -> None:
    with pytest.raises(InvalidContext, match=f"^{missing}: missing"):
        ProgramContext.from_xargs({**IDS, missing: ""})
