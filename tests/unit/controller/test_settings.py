from pathlib import Path
from typing import Any

import pytest

from autellix_controller.settings import InvalidSettings, Settings, TableSettings, load

ENGINE = {"engine": ["http://127.0.0.1:9001"]}


def settings(arguments: dict[str, Any] | None = None, **environ: str) -> Settings:
    return load(Settings, ENGINE if arguments is None else arguments, environ)


def test_the_environment_of_a_pod_is_enough() -> None:
    found = settings(
        {},
        AUTELLIX_CONTROLLER_LISTEN="0.0.0.0:8080",
        AUTELLIX_CONTROLLER_TABLE="etcd://c-etcd.n.svc:2379",
        AUTELLIX_CONTROLLER_TABLE_PREFIX="/autellix/n/c",
        AUTELLIX_CONTROLLER_ENGINES="kubernetes://n/c-engine",
        AUTELLIX_CONTROLLER_REPLICA="c-controller-5c9-x",
        AUTELLIX_CONTROLLER_LOCALITY_THRESHOLD_TOKENS="2048",
        AUTELLIX_CONTROLLER_SESSION_TIMEOUT_SECONDS="3600",
        AUTELLIX_CONTROLLER_ALLOW_ANONYMOUS="true",
        AUTELLIX_CONTROLLER_PORT="tcp://10.0.0.1:80",
    )
    assert (found.host, found.port, found.kubernetes_service) == ("0.0.0.0", 8080, ("n", "c-engine"))
    assert (found.locality_threshold_tokens, found.allow_anonymous) == (2048, True)


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("engine: [http://file:1]\nmax_calls: 1\nspill_calls: 1\nprobe_seconds: 1\n")
    found = settings(
        {"config": str(file), "max_calls": "3"},
        AUTELLIX_CONTROLLER_MAX_CALLS="2",
        AUTELLIX_CONTROLLER_SPILL_CALLS="2",
    )
    assert (found.max_calls, found.spill_calls, found.probe_seconds) == (3, 2, 1.0)
    assert found.idle_deadline_seconds == 120
    assert found.engine == ("http://file:1",)


def test_engines_in_the_environment_are_separated_by_commas() -> None:
    assert settings({}, AUTELLIX_CONTROLLER_ENGINE="http://a:1, http://b:2/v1/").engine == ("http://a:1", "http://b:2")


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "localhost:1", "[::1]:8080"])
def test_anonymous_callers_are_served_on_loopback(listen: str) -> None:
    assert settings({**ENGINE, "listen": listen}).listen == listen


def test_replicas_get_names_of_their_own() -> None:
    assert settings().replica != settings().replica


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "engine, engines: give either"),
        ({**ENGINE, "engines": "kubernetes://n/s"}, "engine, engines: give either"),
        ({"engine": ["ftp://x"]}, "engine: 'ftp://x' is not http://HOST:PORT"),
        ({"engine": ["http://u:p@x:1"]}, "engine: .* is not http"),
        ({"engine": ["http://:p@x:1"]}, "engine: .* is not http"),
        ({"engine": ["http://a:99999"]}, "engine: 'http://a:99999' is not http"),
        ({"engine": ["http://a:x"]}, "engine: 'http://a:x' is not http"),
        ({"engine": ["http://[::1"]}, "engine: .* is not http"),
        ({"engine": ["http://a:1", "http://a:1/"]}, "engine: names an engine twice"),
        ({"engines": "kubernetes://n"}, "engines: 'kubernetes://n' is not kubernetes://NAMESPACE/SERVICE"),
        ({**ENGINE, "hold_seconds": "60", "queue_calls": "0"}, "hold_seconds: needs queue_calls of at least 1"),
        ({**ENGINE, "hold_seconds": "-1"}, "hold_seconds: '-1'"),
        ({**ENGINE, "listen": "8080"}, "listen: '8080' is not HOST:PORT"),
        ({**ENGINE, "listen": "127.0.0.1:99999"}, "listen: .* from 0 to 65535"),
        ({**ENGINE, "listen": "0.0.0.0:80"}, "listen: .* no key is required; set api_keys_file, or allow_anonymous"),
        ({**ENGINE, "share_port": "true"}, "share_port: needs a table that all processes share"),
        (
            {**ENGINE, "share_port": "true", "table": "sqlite:///x"},
            "share_port: needs a table that all processes share",
        ),
        (
            {**ENGINE, "share_port": "true", "table": "etcd://e:1", "listen": "127.0.0.1:0"},
            "share_port: listen must name a port",
        ),
        ({**ENGINE, "table": "redis://x"}, "table: .* allowed are memory:, sqlite:///PATH and etcd://"),
        ({**ENGINE, "table": "etcd://x"}, "table: .* is not HOST:PORT"),
        ({**ENGINE, "table_prefix": "x/"}, "table_prefix: 'x/'"),
        (
            {**ENGINE, "table": "etcds://x:1", "table_key_file": "k"},
            "table_certificate_file, table_key_file: give both",
        ),
        ({**ENGINE, "table": "etcd://x:1", "table_user": "u"}, "table_user, table_password_file: give both or none"),
        ({**ENGINE, "table": "etcd://x:1", "table_ca_file": "c"}, "table_ca_file, .*: only for a table at etcds://"),
        ({**ENGINE, "table_user": "u", "table_password_file": "p"}, "table_user: only for a table in etcd"),
        ({**ENGINE, "replica": "a/b"}, "replica: 'a/b'"),
        (
            {**ENGINE, "locality_threshold_tokens": "many"},
            "locality_threshold_tokens: 'many': Input should be a valid int",
        ),
        (
            {**ENGINE, "locality_threshold_tokens": "-1"},
            "locality_threshold_tokens: '-1': .* greater than or equal to 0",
        ),
        ({**ENGINE, "session_timeout_seconds": "0"}, "session_timeout_seconds: '0': .* greater than or equal to 1"),
        ({**ENGINE, "drain_seconds": "inf"}, "drain_seconds: 'inf'"),
        ({**ENGINE, "allow_anonymous": "perhaps"}, "allow_anonymous: 'perhaps'"),
        ({**ENGINE, "log_level": "loud"}, "log_level: 'loud': Input should be 'debug', 'info', 'warning' or 'error'"),
        ({**ENGINE, "api_keys_file": "k", "allow_anonymous": "true"}, "api_keys_file, allow_anonymous: only one"),
        ({**ENGINE, "config": "/nonexistent"}, "config: cannot read /nonexistent"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as caught:
        settings(arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://user:hunter2@x:1", "http://:hunter2@x:1", "ftp://user:hunter2@[x"])
def test_a_password_in_the_url_of_an_engine_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidSettings, match="engine: ") as caught:
        settings({"engine": [url]})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_cals: 1\n", "max_cals: no such setting; allowed are table"),
        ("[1, 2]\n", "must hold one mapping"),
        ("a: [1\n", "as YAML"),
        ("engine_key: secret\n", "engine_key: no such setting"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettings, match=message) as caught:
        settings({"config": str(file)})
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert settings({**ENGINE, "config": str(tmp_path / "empty.yaml")}).max_calls == 4096


def test_the_table_can_be_named_alone(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("table: etcd://e:2379\nmax_calls: 5\n")
    assert load(TableSettings, {"config": str(file)}, {}).table == "etcd://e:2379"
