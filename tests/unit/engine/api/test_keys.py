"""The engine's keys while they are exchanged."""

import logging
import os
from pathlib import Path

import httpx
import pytest

from autellix_engine.api.auth import AuthSettings, EngineKeyMiddleware, Receive, Scope, Send
from autellix_engine.api.keys import FixedKeys, InvalidAuthSettings, KeysFile, engine_keys
from autellix_engine.launcher import handover


async def anything(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def opens(keys: KeysFile, key: str) -> bool:
    transport = httpx.ASGITransport(EngineKeyMiddleware(anything, AuthSettings(keys)))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        response = await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
    return response.status_code == 200


def test_each_of_several_keys_is_accepted_and_nothing_else() -> None:
    keys = FixedKeys(["one-key", "other-key"])
    assert keys.accept(b"one-key")
    assert keys.accept(b"other-key")
    for wrong in (b"", b"one-key\nother-key", b"one-keyother-key", b"third-key"):
        assert not keys.accept(wrong)


async def test_a_key_counts_as_soon_as_it_is_in_the_file_and_no_longer(tmp_path: Path) -> None:
    """The file is swapped as a kubelet does it: a link that changes at once."""
    link = tmp_path / "keys"

    def mount(version: str, *lines: str) -> None:
        (tmp_path / version).write_text("\n".join(lines))
        (tmp_path / "next").symlink_to(tmp_path / version)
        os.replace(tmp_path / "next", link)

    mount("v1", "old-key", "")
    keys = KeysFile(link)
    assert [await opens(keys, key) for key in ("old-key", "new-key")] == [True, False]
    mount("v2", "new-key", "old-key")
    assert [await opens(keys, key) for key in ("old-key", "new-key")] == [True, True]
    mount("v3", "new-key")
    assert [await opens(keys, key) for key in ("old-key", "new-key")] == [False, True]


@pytest.mark.parametrize("bad", [None, "", "\n\n", "two words\n", "schlüssel\n"])
async def test_a_file_that_became_bad_leaves_the_keys_in_force_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    path = tmp_path / "keys"
    path.write_text("old-key\n")
    keys = KeysFile(path)
    path.unlink()
    if bad is not None:
        path.write_text(bad)
    with caplog.at_level(logging.INFO, "vllm.autellix.keys"):
        assert [await opens(keys, key) for key in ("old-key", "new-key")] == [True, False]
    (record,) = caplog.records
    assert record.getMessage().startswith("The keys in force stay: AUTELLIX_ENGINE_KEY_FILE: ")
    assert all(word not in caplog.text for word in ("old-key", "words", "schlüssel"))
    path.write_text("new-key\n")
    assert await opens(keys, "new-key")


def test_the_environment_names_the_source(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one-key\n")
    file = {handover.ENGINE_KEY_FILE: str(path)}
    assert engine_keys({}) is None
    for env in ({handover.ENGINE_KEY: "one-key"}, file):
        keys = engine_keys(env)
        assert keys is not None
        assert keys.accept(b"one-key")
        assert "one-key" not in repr(vars(keys))
    with pytest.raises(InvalidAuthSettings, match="only one of the two may be set"):
        engine_keys({**file, handover.ENGINE_KEY: "one-key"})
