import os
from pathlib import Path

import pytest

from autellix_controller.access import ANONYMOUS, Access, InvalidKeys, KeyLimits, KeysFile, parse_keys
from autellix_controller.errors import ApiError


def test_keys_are_held_as_hashes_only() -> None:
    (key,) = parse_keys("# who may call\n\n  alice:secret-key:with-colon  \n")
    assert key.name == "alice"
    assert b"secret" not in key.digest
    assert Access([key]).owner(b"Bearer secret-key:with-colon") == "alice"
    assert Access([key]).owner(b"bearer  secret-key:with-colon ") == "alice"


def test_a_tenant_may_hold_two_keys_so_that_they_can_be_exchanged() -> None:
    access = Access(parse_keys("alice:old-key-1\nalice:new-key-1\nbob:key-of-bob\n"))
    assert [access.owner(b"Bearer " + key) for key in (b"old-key-1", b"new-key-1", b"key-of-bob")] == [
        "alice",
        "alice",
        "bob",
    ]


def test_limits_behind_a_key_count_for_all_keys_of_its_tenant() -> None:
    access = Access(parse_keys("alice:old-key-1\nalice:new-key-1  calls=2 tokens_per_minute=5000\nbob:key-of-bob\n"))
    assert access.limits("alice") == KeyLimits(calls=2, tokens_per_minute=5000)
    assert access.limits("bob") == access.limits(ANONYMOUS) == KeyLimits()
    assert access.owner(b"Bearer new-key-1") == "alice"


def test_without_keys_everybody_is_anonymous() -> None:
    assert Access(None).owner(b"Bearer whatever") == ANONYMOUS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no key"),
        ("# nothing\n", "holds no key"),
        ("alice", "line 1: not name:key"),
        ("a b:key-key-key", "line 1: not name:key"),
        ("ok:key-key-key\nanonymous:key-key-ke2", "line 2: not name:key"),
        ("alice:short", "line 1: the key of alice must be 8 to 512"),
        ("alice:with blank 123", "line 1: the key of alice must be"),
        ("alice:long-enough blank", "line 1: after the key only calls=N, requests_per_minute=N, .* may follow"),
        ("alice:key-key-key calls=1 calls=2", "line 1: after the key only"),
        ("alice:key-key-key calls=0", "line 1: calls must be a number from 1 to"),
        ("alice:key-key-key calls=1\nalice:key-key-ke2 calls=2", "line 2: alice has other limits on another line"),
        ("alice:same-key-1\nbob:same-key-1", "line 2: the key of bob stands in the file twice"),
    ],
)
def test_a_bad_file_is_refused_by_line_and_without_the_key(text: str, message: str) -> None:
    with pytest.raises(InvalidKeys, match=message) as caught:
        parse_keys(text)
    assert "key-key" not in str(caught.value)
    assert "same-key" not in str(caught.value)


@pytest.mark.parametrize("authorization", [None, b"", b"Bearer", b"Bearer ", b"Basic x", b"Bearer nope", b"\xff"])
def test_a_wrong_key_is_refused(authorization: bytes | None) -> None:
    with pytest.raises(ApiError) as caught:
        Access(parse_keys("alice:right-key")).owner(authorization)
    assert caught.value.status == 401


def test_a_changed_file_counts_at_once_even_when_swapped_like_a_mounted_secret(tmp_path: Path) -> None:
    for number, text in ((1, "alice:first-key"), (2, "alice:other-key")):
        (tmp_path / f"v{number}").write_text(text)
    link = tmp_path / "keys"
    link.symlink_to(tmp_path / "v1")
    keys = KeysFile(link)
    assert not keys.file.reload_if_changed()
    (tmp_path / "next").symlink_to(tmp_path / "v2")
    os.replace(tmp_path / "next", link)
    assert keys.file.reload_if_changed()
    assert keys.access.owner(b"Bearer other-key") == "alice"
    with pytest.raises(ApiError):
        keys.access.owner(b"Bearer first-key")


def test_a_file_that_became_bad_leaves_the_keys_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    path.write_text("alice:first-key")
    keys = KeysFile(path)
    path.write_text("garbage of some length")
    assert not keys.file.reload_if_changed()
    path.unlink()
    assert not keys.file.reload_if_changed()
    assert keys.access.owner(b"Bearer first-key") == "alice"
    assert [record.getMessage() for record in caplog.records] == ["API keys not reloaded"] * 2


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeys, match="cannot be read"):
        KeysFile(tmp_path / "none")
