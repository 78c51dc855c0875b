import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.routing.length import MOST_BYTES_PER_TOKEN, estimated_tokens, is_short


@pytest.mark.parametrize(
    ("prompt", "tokens"), [(b'"' + b"x" * 398 + b'"', 100), (b"[1, 2,3]", 3), (b"[[1,2]]", 1), (b"", 0)]
)
def test_four_bytes_count_as_a_token_and_token_ids_as_themselves(prompt: bytes, tokens: int) -> None:
    assert estimated_tokens(prompt) == tokens


def test_a_threshold_of_zero_makes_no_call_short() -> None:
    assert is_short(b"", 0) is False


@pytest.mark.parametrize(
    ("size", "short"),
    [(2048, True), (2049, None), (2048 * MOST_BYTES_PER_TOKEN, None), (2048 * MOST_BYTES_PER_TOKEN + 1, False)],
)
def test_bytes_decide_where_no_tokenizer_could_say_otherwise(size: int, short: bool | None) -> None:
    assert is_short(b"x" * size, 2048) is short


@given(st.lists(st.integers(0, 200_000), min_size=1), st.integers(1, 100))
def test_token_ids_are_counted_exactly(ids: list[int], threshold: int) -> None:
    assert is_short(str(ids).encode(), threshold) is (len(ids) <= threshold)
