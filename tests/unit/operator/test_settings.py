"""Settings, and the command that reads them."""

import json
import logging
import sys

import pytest

from autellix_operator.__main__ import main
from autellix_operator.logs import JsonFormatter
from autellix_operator.settings import InvalidSettings, Settings, flag, load, variable

IMAGES = {"engine_image": "e", "controller_image": "c", "etcd_image": "d"}


def test_a_flag_wins_over_the_environment() -> None:
    settings = load({**IMAGES, "workers": "7", "log_level": None}, {"AUTELLIX_OPERATOR_WORKERS": "3", "OTHER": "x"})
    assert settings.workers == 7
    assert settings.log_level == "info"


def test_the_environment_alone_is_enough() -> None:
    environment = {variable(name): value for name, value in IMAGES.items()}
    environment |= {"AUTELLIX_OPERATOR_WATCH_NAMESPACES": "a, b,", "AUTELLIX_OPERATOR_HTTP_LISTEN": "[::1]:80"}
    settings = load({}, environment)
    assert settings.watch_namespaces == ("a", "b")
    assert settings.http_address == ("::1", 80)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("watch_namespaces", "Upper"),
        ("engine_image", ""),
        ("controller_image", "a b"),
        ("etcd_image", ""),
        ("http_listen", "8081"),
        ("http_listen", "h:0"),
        ("http_listen", "h:65536"),
        ("resync_seconds", "9"),
        ("workers", "0"),
        ("workers", "many"),
        ("log_format", "xml"),
        ("log_level", "loud"),
    ],
)
def test_a_wrong_setting_is_named_with_its_flag_and_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load({**IMAGES, name: value}, {})
    assert f"{flag(name)} or {variable(name)}: " in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_misspelt_variable_is_told() -> None:
    with pytest.raises(InvalidSettings, match="AUTELLIX_OPERATOR_WORKRES"):
        load(IMAGES, {"AUTELLIX_OPERATOR_WORKRES": "1"})


def test_the_command_ends_with_one_line_on_a_wrong_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--engine-image=e", "--controller-image=c"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--etcd-image" in error


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    for name in Settings.model_fields:
        assert flag(name) in text
        assert variable(name) in "".join(text.split())


def test_json_logs_are_one_object_a_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "a %s", ("b\nc",), sys.exc_info())
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("error", "n", "a b\nc")
    assert "ValueError" in line["exception"]
