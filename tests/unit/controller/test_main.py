import json

import pytest

from autellix_controller.__main__ import main
from autellix_controller.listing import render
from autellix_controller.settings import Settings
from autellix_controller.table.entry import ProgramEntry
from autellix_wire.records import ProgramTotals


def entry(session: str, service_ms: float, **fields: object) -> ProgramEntry:
    values: dict[str, object] = {
        "id": session * 20,
        "owner": "alice",
        "session": session,
        "totals": {"i": ProgramTotals(service_ms=service_ms, calls=3)},
        **fields,
    }
    return ProgramEntry(**values)  # type: ignore[arg-type]


def test_help_describes_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert f"[AUTELLIX_CONTROLLER_{name.upper()}" in text
        assert str(field.description) in text
    assert "Undefined" not in text
    assert "[AUTELLIX_CONTROLLER_LOCALITY_THRESHOLD_TOKENS, default 0]" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["programs"], "table: memory: can only be read by the controller itself; give an etcd:// or sqlite:// URL"),
        (["programs", "--table", "x"], "table: not a known kind of table"),
        (["--listen", "x", "--engine", "http://a:1"], "listen: 'x' is not HOST:PORT"),
    ],
)
def test_a_wrong_setting_ends_the_command_with_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"autellix-controller: {message}")


def test_programs_are_listed_for_people_most_service_first() -> None:
    entries = [
        entry("s", 1500.0, engine="engine-0", wait_ms=61_000.0, last_completion_ms=1_000),
        entry("longer", 7_300_000.0, state="ended"),
    ]
    assert render(entries, now_ms=31_000).splitlines() == [
        "SESSION  OWNER  STATE   ENGINE    CALLS  SERVICE  WAIT   IDLE   PROGRAM",
        "longer   alice  ended   -         3      2h01m    0.0s   31.0s  longerlonger",
        "s        alice  active  engine-0  3      1.5s     1m01s  30.0s  ssssssssssss",
    ]


def test_an_empty_table_shows_its_head() -> None:
    assert render([], now_ms=0).split()[0] == "SESSION"


def test_json_is_what_the_sessions_api_says() -> None:
    from autellix_controller.sessions.api import describe

    described = json.loads(json.dumps(describe(entry("s", 2.0, created_ms=5_999))))
    assert (described["id"], described["service_ms"], described["created"]) == ("s", 2.0, 5)
