import pytest

from autellix_controller.routing.length import estimated_tokens, is_short


@pytest.mark.parametrize(
    ("prompt", "tokens"), [(b'"' + b"x" * 398 + b'"', 100), (b"[1, 2,3]", 3), (b"[[1,2]]", 1), (b"", 0)]
)
def test_four_bytes_count_as_a_token_and_token_ids_as_themselves(prompt: bytes, tokens: int) -> None:
    assert estimated_tokens(prompt) == tokens


def test_a_threshold_of_zero_makes_no_call_short() -> None:
    assert not is_short(b"", 0)


def test_short_calls_are_those_up_to_the_threshold() -> None:
    assert is_short(b"x" * 8195, 2048)
    assert not is_short(b"x" * 8196, 2048)


def test_what_fits_in_bytes_is_surely_short() -> None:
    assert is_short(b"x" * 2048, 2048)
