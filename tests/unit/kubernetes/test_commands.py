import pytest

from onenode.commands import output
from onenode.errors import OnenodeError


def test_what_a_command_prints_is_given() -> None:
    assert output(["cat"], what="cat", stdin="hello") == "hello"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no >&2; exit 3", "trying failed: no"),
        ("echo only this; exit 3", "trying failed: only this"),
        ("exit 3", "trying failed: status 3"),
    ],
)
def test_a_failure_is_told_in_the_words_of_the_command(script: str, message: str) -> None:
    with pytest.raises(OnenodeError) as failed:
        output(["sh", "-c", script], what="trying")
    assert str(failed.value) == message


def test_a_command_that_hangs_is_named_with_its_time() -> None:
    with pytest.raises(OnenodeError, match="trying: not done within 0 s"):
        output(["sleep", "60"], what="trying", seconds=0.05)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(OnenodeError, match="trying: no-such-program is not installed"):
        output(["no-such-program"], what="trying")
