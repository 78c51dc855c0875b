"""The keys that engines ask for."""

from pathlib import Path

import pytest

from autellix_controller.engines.keys import EngineKeys, InvalidEngineKeys, engine_keys


def shown(keys: EngineKeys) -> list[str]:
    assert [dict(each).get(b"authorization", b"").decode() for each in keys.headers] == [
        each.get("Authorization", "") for each in keys.mappings
    ]
    return [each.get("Authorization", "") for each in keys.mappings]


def test_they_come_from_their_variable_or_a_file(tmp_path: Path) -> None:
    assert shown(engine_keys(None, {})) == [""]
    assert shown(engine_keys(None, {"AUTELLIX_ENGINE_KEY": "k1"})) == ["Bearer k1"]
    file = tmp_path / "key"
    file.write_text("k2\n")
    assert shown(engine_keys(file, {"AUTELLIX_ENGINE_KEY": "k1"})) == ["Bearer k2"]


def test_a_file_may_hold_several_and_they_are_tried_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("new\n\n old \nnew\n")
    assert shown(engine_keys(file, {})) == ["Bearer new", "Bearer old"]


def test_another_file_counts_and_a_bad_one_leaves_the_keys_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text("old-secret\n")
    keys = engine_keys(path, {})
    assert keys.file is not None
    path.write_text("new-secret\nold-secret\n")
    assert keys.file.reload_if_changed()
    for bad in ("", "two secrets\n"):
        path.write_text(bad)
        assert not keys.file.reload_if_changed()
    assert shown(keys) == ["Bearer new-secret", "Bearer old-secret"]
    assert "secrets" not in str([record.__dict__ for record in caplog.records])


def test_a_bad_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidEngineKeys, match="AUTELLIX_ENGINE_KEY: the key must be visible ASCII") as caught:
        engine_keys(None, {"AUTELLIX_ENGINE_KEY": "se cret"})
    assert "cret" not in str(caught.value)
    file = tmp_path / "key"
    with pytest.raises(InvalidEngineKeys, match=r"engine_key_file: .* cannot be read"):
        engine_keys(file, {})
    file.write_text("\n")
    with pytest.raises(InvalidEngineKeys, match=r"engine_key_file: .* is empty"):
        engine_keys(file, {})
