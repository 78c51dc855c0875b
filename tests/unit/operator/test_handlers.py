"""What kopf is told."""

from autellix_operator.handlers import settings


def test_lists_at_the_start_come_in_pages() -> None:
    assert settings().watching.chunk_size == 500
