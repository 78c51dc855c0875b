import os
import threading
from pathlib import Path

import pytest

from onenode.cache import cache_folder, digest, locked, prune, published
from onenode.errors import OnenodeError


def test_cache_folder_follows_the_xdg_variable_and_ignores_a_relative_one() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/var/tmp/c"}) == Path("/var/tmp/c/autellix")
    assert cache_folder({"XDG_CACHE_HOME": "c"}) == Path.home() / ".cache" / "autellix"
    assert cache_folder({}) == Path.home() / ".cache" / "autellix"


def test_a_digest_tells_apart_contents_that_look_alike_when_joined() -> None:
    assert digest([("a", b"bc")]) == digest([("a", b"bc")])
    assert len({digest([("a", b"bc")]), digest([("ab", b"c")]), digest([("a", b"b"), ("c", b"")])}) == 3


def test_published_makes_a_folder_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "result").write_text("x")

    for _ in range(2):
        assert (published(tmp_path / "thing", make, "a thing") / "result").read_text() == "x"
    assert len(calls) == 1


def test_a_failed_make_publishes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "half").touch()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        published(tmp_path / "thing", make, "a thing")
    assert [path.name for path in tmp_path.iterdir()] == ["thing.lock"]


def test_what_a_killed_process_left_half_made_is_removed_and_made_again(tmp_path: Path) -> None:
    left_over = tmp_path / ".thing.abcd"
    left_over.mkdir()
    published(tmp_path / "thing", lambda folder: None, "a thing")
    assert not left_over.exists()
    assert (tmp_path / "thing").is_dir()


def test_of_several_that_want_the_same_one_makes_it_and_the_others_wait(tmp_path: Path) -> None:
    begun, release, calls = threading.Event(), threading.Event(), []

    def make(folder: Path) -> None:
        calls.append(folder)
        begun.set()
        release.wait(60)
        (folder / "result").write_text("x")

    found: list[str] = []

    def want() -> None:
        found.append((published(tmp_path / "thing", make, "a thing") / "result").read_text())

    threads = [threading.Thread(target=want) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    assert not (tmp_path / "thing").exists()
    release.set()
    for thread in threads:
        thread.join()
    assert (found, len(calls)) == (["x"] * 3, 1)


def test_a_lock_that_is_held_is_waited_for_and_said_to_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path / "lock", "the second"):
            order.append("second")

    with locked(tmp_path / "lock", "the first"):
        thread = threading.Thread(target=second)
        thread.start()
        while "waiting for another process: the second" not in capfd.readouterr().err:
            pass
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_prune_removes_what_nobody_asked_for_and_keeps_what_is_used(tmp_path: Path) -> None:
    published(tmp_path / "old", lambda folder: (folder / "file").touch(), "old")
    now = (tmp_path / "old").stat().st_mtime
    prune(tmp_path, unused_days=3, now=lambda: now + 2.9 * 86400)
    assert (tmp_path / "old").exists()
    prune(tmp_path, unused_days=3, now=lambda: now + 3.1 * 86400)
    assert not (tmp_path / "old").exists()


def test_a_cache_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(OnenodeError, match=r"cannot write to .*/cache/autellix: .*XDG_CACHE_HOME"):
        published(tmp_path / "cache" / "autellix" / "thing", lambda folder: None, "a thing")


def test_what_another_user_has_made_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    (tmp_path / "thing").mkdir()
    monkeypatch.setattr(os, "utime", refuse)
    assert published(tmp_path / "thing", lambda folder: pytest.fail("made again"), "a thing") == tmp_path / "thing"


def test_a_lock_that_another_has_is_refused_where_waiting_is_not_wanted(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", "the work"),
        pytest.raises(OnenodeError, match="somebody works"),
        locked(tmp_path / "lock", "the work", refusal="somebody works"),
    ):
        pass
    with locked(tmp_path / "lock", "the work", refusal="somebody works"):
        pass
