"""``serve``: checks everything that can be checked early, then becomes ``vllm serve``."""

import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from autellix_engine.compatibility import SUPPORTED_VLLM
from autellix_engine.launcher.arguments import InvalidArguments, ServeArguments, parse_serve
from autellix_engine.launcher.command import DEFAULT_DRAIN_SECONDS, Command, build_command, check_vllm
from autellix_engine.launcher.memory import resolve_swap
from autellix_engine.launcher.termination import explain
from autellix_engine.policy.settings import SchedulingSettings
from autellix_engine.swap.settings import SwapSettings
from autellix_kernels.pool import memory_limit, read_memory_facts

#: Exit status of a start that was refused; all others are vLLM's.
REFUSED_STATUS: Final = 2
#: Groups of vLLM plugins that load unless ``VLLM_PLUGINS`` names others.
_PLUGIN_GROUPS: Final = (
    "vllm.general_plugins",
    "vllm.io_processor_plugins",
    "vllm.platform_plugins",
    "vllm.stat_logger_plugins",
)


def serve(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Replaces this process by ``vllm serve``, so that signals and exit status are vLLM's. Returns only to refuse."""
    try:
        given = parse_serve(arguments)
        if given.help:
            sys.stdout.write(help_text())
            return 0
        check_vllm(_vllm_version())
        command = _prepare(given, env)
    except InvalidArguments as error:
        message = f"autellix-engine: {error}"
        sys.stderr.write(message + "\n")
        explain(message, env)
        return REFUSED_STATUS
    for note in command.notes:
        sys.stderr.write(f"autellix-engine: {note}\n")
    sys.stderr.flush()
    os.execve(command.arguments[0], command.arguments, command.environment)


def _prepare(given: ServeArguments, env: Mapping[str, str]) -> Command:
    """The command, with a folder for the record channel that belongs to this start alone."""
    swap = resolve_swap(given.swap, memory_limit(), read_memory_facts())
    try:
        folder = Path(tempfile.mkdtemp(prefix="autellix-engine-"))
    except OSError as error:
        raise InvalidArguments(f"TMPDIR: no folder can be made there: {error}") from error
    try:
        return build_command(given, env, str(folder / "records.sock"), _other_plugins(), swap)
    except InvalidArguments:
        folder.rmdir()
        raise


def help_text() -> str:
    """What ``serve --help`` prints."""
    policy, *fields = SchedulingSettings.model_fields
    swap_fields = list(SwapSettings.model_fields)
    return f"""\
usage: python3 -m autellix_engine serve --model MODEL [--scheduling JSON] [--swap JSON] [--open-metrics]
                                        [argument of vllm serve ...]

Starts vLLM {SUPPORTED_VLLM} with the program-aware scheduler, the record stream and the guard of the engine's key.

  --model MODEL       a folder or a name on the model hub; also accepted as first argument
  --scheduling JSON   settings of the scheduler as one JSON object, such as '{{"{policy}": "plas"}}';
                      each has a default; fields: {", ".join([policy, *fields[:4]])},
                      {", ".join(fields[4:])}
  --swap JSON         settings of KV swapping, such as '{{"size": "40%"}}': host memory for the KV cache
                      of live programs, in bytes or percent of the container's memory limit; 0, the default:
                      no swapping; fields: {", ".join(swap_fields[:5])},
                      {", ".join(swap_fields[5:])}
  --open-metrics      let /metrics answer without the engine's key, for a scraper that has none

Everything else is passed on to vLLM (see: vllm serve --help), except for arguments that belong to the system.

environment:
  AUTELLIX_ENGINE_KEY      the key that every path but /health asks for (Authorization: Bearer KEY);
                           not needed if --host is a loopback address
  AUTELLIX_ENGINE_KEY_FILE instead of it: a file with one or more such keys, one a line, which is read again
                           when it changes; each of them is accepted
  AUTELLIX_ENGINE_NAME     name of this engine in call records (default: the host's name)
  AUTELLIX_DRAIN_SECONDS   how long calls may still run after SIGTERM (default: {DEFAULT_DRAIN_SECONDS})
  AUTELLIX_TERMINATION_LOG file for the reason of a refused start (default: /dev/termination-log)

exit status: {REFUSED_STATUS} if the start was refused, otherwise vLLM's
"""


def _vllm_version() -> str | None:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _other_plugins() -> list[str]:
    return [entry.name for group in _PLUGIN_GROUPS for entry in importlib.metadata.entry_points(group=group)]
