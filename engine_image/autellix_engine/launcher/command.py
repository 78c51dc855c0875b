"""The command that the launcher becomes: ``vllm serve`` with our scheduler, API and guard."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from autellix_engine.api.keys import InvalidAuthSettings, engine_keys
from autellix_engine.compatibility import SUPPORTED_VLLM, is_supported
from autellix_engine.launcher import handover
from autellix_engine.launcher.arguments import InvalidArguments, ServeArguments
from autellix_engine.policy.settings import InvalidSettings, SchedulingSettings
from autellix_engine.swap.handover import transfer_config
from autellix_engine.swap.settings import SwapSettings

SCHEDULER: Final = "autellix_engine.scheduler.ProgramScheduler"
GUARD: Final = "autellix_engine.api.auth.EngineKeyMiddleware"
#: Name of our entry point among vLLM's endpoint plugins.
PLUGIN: Final = "autellix"
DEFAULT_DRAIN_SECONDS: Final = 30
MAX_DRAIN_SECONDS: Final = 24 * 3600
#: A longer path does not fit into a socket address.
MAX_SOCKET_PATH_BYTES: Final = 107

#: Variables that would make vLLM another server than the one the system relies on, and why.
_REFUSED_VARIABLES: Final = {
    "VLLM_API_KEY": f"unset it: the engine's key comes from {handover.ENGINE_KEY_FILE} or {handover.ENGINE_KEY}",
    "VLLM_USE_RUST_FRONTEND": "unset it: that server knows neither our API nor our guard",
}


@dataclass(frozen=True)
class Command:
    """What to execute."""

    arguments: list[str]
    environment: dict[str, str] = field(repr=False)
    notes: list[str]
    """What whoever starts the engine should know, one line each."""


def check_vllm(version: str | None) -> None:
    """Raises InvalidArguments unless the installed vLLM (None: there is none) is the supported one."""
    if version is None:
        raise InvalidArguments(f"vLLM is not installed; this engine needs vllm=={SUPPORTED_VLLM}")
    if not is_supported(version):
        raise InvalidArguments(f"vLLM {version} is installed; this engine supports vllm=={SUPPORTED_VLLM} alone")


def build_command(
    given: ServeArguments, env: Mapping[str, str], socket: str, other_plugins: Iterable[str], swap: SwapSettings
) -> Command:
    """The command for these arguments and this environment.

    ``socket`` is the path of the record channel, ``other_plugins`` are the names of the vLLM plugins that would load
    if nothing named any, ``swap`` has its size in bytes by now. Raises InvalidArguments.
    """
    for name, reason in _REFUSED_VARIABLES.items():
        if env.get(name):
            raise InvalidArguments(f"{name}: {reason}")
    if len(handover.reports_socket(socket).encode()) > MAX_SOCKET_PATH_BYTES:
        raise InvalidArguments(f"TMPDIR: too long a path for a socket: {socket}")
    try:
        settings = SchedulingSettings.parse(given.scheduling)
    except InvalidSettings as error:
        raise InvalidArguments(f"--{error}") from error
    guard, notes = _guard(given, env)
    arguments = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", given.model),
        *("--scheduler-cls", SCHEDULER),
        *("--additional-config", json.dumps(handover.additional_config(settings))),
        *("--shutdown-timeout", str(_drain_seconds(env))),
        *(("--kv-transfer-config", json.dumps(transfer_config(swap))) if swap.size else ()),
        *guard,
        *given.passed_on,
    ]
    environment = {
        **env,
        handover.RECORDS_SOCKET: socket,
        handover.OPEN_METRICS: "true" if given.open_metrics else "false",
        "VLLM_PLUGINS": _plugins(env, other_plugins),
        "VLLM_NO_USAGE_STATS": "1",
        # vLLM's 5 s end while a busy server has not yet read the next call of that connection.
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": env.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "75"),
    }
    return Command(arguments, environment, notes)


def _guard(given: ServeArguments, env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    try:
        keys = engine_keys(env)
    except InvalidAuthSettings as error:
        raise InvalidArguments(str(error)) from error
    if keys is not None:
        return ["--middleware", GUARD], []
    unset = f"neither {handover.ENGINE_KEY_FILE} nor {handover.ENGINE_KEY} is set"
    if not given.loopback_only:
        raise InvalidArguments(
            f"{unset}: without a key an engine may listen on a loopback address only, such as --host 127.0.0.1"
        )
    return [], [f"{unset}: every process on this machine can use the engine"]


def _drain_seconds(env: Mapping[str, str]) -> int:
    text = env.get(handover.DRAIN_SECONDS, str(DEFAULT_DRAIN_SECONDS))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= MAX_DRAIN_SECONDS):
        raise InvalidArguments(
            f"{handover.DRAIN_SECONDS}: {text!r} is not a whole number from 0 to {MAX_DRAIN_SECONDS}"
        )
    return int(text)


def _plugins(env: Mapping[str, str], other_plugins: Iterable[str]) -> str:
    """vLLM loads our API only if it is named, and then nothing that is not."""
    named = env["VLLM_PLUGINS"].split(",") if "VLLM_PLUGINS" in env else other_plugins
    return ",".join(dict.fromkeys([PLUGIN, *(name.strip() for name in named if name.strip())]))
