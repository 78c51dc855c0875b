"""What the launcher becomes."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autellix_engine.launcher import handover
from autellix_engine.launcher.arguments import InvalidArguments, ServeArguments
from autellix_engine.launcher.command import Command, build_command, check_vllm
from autellix_engine.policy.settings import SchedulingSettings
from autellix_engine.swap.handover import swap_settings
from autellix_engine.swap.settings import SwapSettings

KEY = "the-secret-key"
OFF = SwapSettings()
UNSET = "neither AUTELLIX_ENGINE_KEY_FILE nor AUTELLIX_ENGINE_KEY is set"
LOOPBACK = ["--host", "127.0.0.1"]


def build(
    env: Mapping[str, str] | None = None,
    socket: str = "/tmp/x/records.sock",
    scheduling: str = "{}",
    swap: SwapSettings = OFF,
    **given: object,
) -> Command:
    arguments = ServeArguments(model="m", scheduling=scheduling, **given)  # type: ignore[arg-type]
    environment = {handover.ENGINE_KEY: KEY} if env is None else env
    return build_command(arguments, environment, socket, ["lora", "stats"], swap)


def value(command: Command, name: str) -> str:
    assert command.arguments.count(name) == 1
    return command.arguments[command.arguments.index(name) + 1]


def test_it_is_vllm_serve_with_our_parts_and_the_rest_as_given() -> None:
    command = build(passed_on=["--max-num-seqs", "2"])
    assert command.arguments[:5] == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "m"]
    assert command.arguments[-2:] == ["--max-num-seqs", "2"]
    assert value(command, "--scheduler-cls") == "autellix_engine.scheduler.ProgramScheduler"
    assert value(command, "--middleware") == "autellix_engine.api.auth.EngineKeyMiddleware"
    assert command.notes == []


def test_the_settings_arrive_as_they_were_given() -> None:
    command = build(scheduling='{"policy": "atlas", "queue_bounds_ms": [1, 2.5], "quanta_ms": [1, 2]}')
    handed_over = handover.scheduling_settings(json.loads(value(command, "--additional-config")))
    assert handed_over == SchedulingSettings(policy="atlas", queue_bounds_ms=(1, 2.5), quanta_ms=(1, 2))


def test_swapping_is_switched_on_by_a_size_alone() -> None:
    assert "--kv-transfer-config" not in build().arguments
    settings = SwapSettings(size=1 << 30, prefetch_seconds=2)
    handed_over = json.loads(value(build(swap=settings), "--kv-transfer-config"))
    assert swap_settings(handed_over["kv_connector_extra_config"]) == settings
    assert handed_over["kv_load_failure_policy"] == "recompute"


def test_without_settings_the_defaults_arrive() -> None:
    assert handover.scheduling_settings(json.loads(value(build(), "--additional-config"))) == SchedulingSettings()
    assert handover.scheduling_settings({}) == SchedulingSettings()


@pytest.mark.parametrize(
    ("scheduling", "said"),
    [
        ("{", "--scheduling: Invalid JSON: .* line 1 column 1"),
        ("[]", "--scheduling: "),
        ('{"polcy": "plas"}', "--scheduling.polcy: unknown; allowed are policy, "),
        ('{"policy": "sjf"}', "--scheduling.policy: .*'fcfs', 'mlfq', 'plas' or 'atlas'"),
        ('{"queue_bounds_ms": [2, 1]}', "--scheduling.queue_bounds_ms: must ascend strictly"),
        ('{"quanta_ms": [-1]}', "--scheduling.quanta_ms.0: "),
    ],
)
def test_wrong_settings_are_one_line_that_names_the_field(scheduling: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said) as caught:
        build(scheduling=scheduling)
    assert "\n" not in str(caught.value)


def test_the_environment_is_kept_and_completed() -> None:
    command = build({handover.ENGINE_KEY: KEY, "HOME": "/scratch"}, open_metrics=True)
    assert command.environment == {
        handover.ENGINE_KEY: KEY,
        "HOME": "/scratch",
        handover.RECORDS_SOCKET: "/tmp/x/records.sock",
        handover.OPEN_METRICS: "true",
        "VLLM_PLUGINS": "autellix,lora,stats",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75",
    }


@pytest.mark.parametrize(
    ("named", "plugins"), [("", "autellix"), ("a, b", "autellix,a,b"), ("a,autellix", "autellix,a")]
)
def test_plugins_that_were_named_stay_the_only_ones_besides_ours(named: str, plugins: str) -> None:
    env = {handover.ENGINE_KEY: KEY, "VLLM_PLUGINS": named}
    assert build(env).environment["VLLM_PLUGINS"] == plugins


def test_the_key_is_in_no_argument_and_no_text() -> None:
    command = build()
    assert KEY not in " ".join(command.arguments)
    assert KEY not in repr(command)


def test_without_a_key_only_this_machine_may_reach_the_engine_and_is_told() -> None:
    command = build({}, passed_on=LOOPBACK)
    assert "--middleware" not in command.arguments
    assert command.notes == [f"{UNSET}: every process on this machine can use the engine"]
    with pytest.raises(InvalidArguments, match=rf"{UNSET}: .* --host 127"):
        build({}, passed_on=["--host", "0.0.0.0"])


@pytest.mark.parametrize("key", ["", "two words", "line\n", "schlüssel"])
@pytest.mark.parametrize("passed_on", [[], LOOPBACK])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str, passed_on: list[str]) -> None:
    with pytest.raises(InvalidArguments, match="AUTELLIX_ENGINE_KEY: must be visible ASCII") as caught:
        build({handover.ENGINE_KEY: key}, passed_on=passed_on)
    assert not key or key not in str(caught.value)


def test_keys_may_come_from_a_file_that_is_checked_and_whose_content_goes_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(InvalidArguments, match=r"AUTELLIX_ENGINE_KEY_FILE: .*: cannot be read"):
        build({handover.ENGINE_KEY_FILE: str(path)})
    path.write_text(f"{KEY}\n")
    command = build({handover.ENGINE_KEY_FILE: str(path)})
    assert "--middleware" in command.arguments
    assert command.environment[handover.ENGINE_KEY_FILE] == str(path)
    assert KEY not in str((command.arguments, command.environment, command.notes))
    with pytest.raises(InvalidArguments, match="only one of the two may be set"):
        build({handover.ENGINE_KEY_FILE: str(path), handover.ENGINE_KEY: KEY})


def test_the_drain_time_becomes_vllms_shutdown_time() -> None:
    assert value(build(), "--shutdown-timeout") == "30"
    assert value(build({handover.ENGINE_KEY: KEY, handover.DRAIN_SECONDS: "7"}), "--shutdown-timeout") == "7"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "99999999", "²"])
def test_a_wrong_drain_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"AUTELLIX_DRAIN_SECONDS: .* is not a whole number from 0 to 86400"):
        build({handover.ENGINE_KEY: KEY, handover.DRAIN_SECONDS: text})


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "VLLM_USE_RUST_FRONTEND"])
def test_variables_that_make_another_server_of_it_are_refused(name: str) -> None:
    with pytest.raises(InvalidArguments, match=f"{name}: unset it"):
        build({handover.ENGINE_KEY: KEY, name: "1"})


def test_a_path_too_long_for_a_socket_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="TMPDIR: too long"):
        build(socket="/" + 107 * "x")


@pytest.mark.parametrize("version", ["0.32.0", "0.32.0+cpu"])
def test_the_supported_vllm_is_accepted(version: str) -> None:
    check_vllm(version)


@pytest.mark.parametrize("version", ["0.31.9", "0.32.1", "0.33.0+cpu", None])
def test_another_vllm_is_refused_and_the_right_one_named(version: str | None) -> None:
    with pytest.raises(InvalidArguments, match=r"vllm==0\.32\.0"):
        check_vllm(version)
