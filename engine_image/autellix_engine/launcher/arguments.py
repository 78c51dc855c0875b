"""Which arguments are the launcher's own, which go on to ``vllm serve``, and which are refused."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_ONE_SERVER: Final = "an engine is one API server and one engine core; run more engines instead"
_SWAP: Final = "KV cache is moved by --swap"
_ONE_STAGE: Final = "the scheduler charges the time of one step at a time; use --tensor-parallel-size"
_PLAIN_HTTP: Final = "an engine is reached by plain HTTP over TCP, inside of the cluster"

#: Arguments of ``vllm serve`` that the system sets itself or that break what it relies on, and why.
#: A name that ends with ``*`` stands for all that begin like it.
REFUSED: Final = {
    "--scheduler-cls": "the engine's scheduler is part of the system",
    "--scheduling-policy": "the order of calls is set by --scheduling",
    "--additional-config": "it carries the settings of --scheduling",
    "--middleware": "it carries the guard that asks for the engine's key",
    "--api-key": "the engine's key comes from AUTELLIX_ENGINE_KEY_FILE or AUTELLIX_ENGINE_KEY",
    "--shutdown-timeout": "it comes from AUTELLIX_DRAIN_SECONDS",
    "--config": "a file could hold arguments that belong to the system; give its arguments one by one",
    "--kv-transfer-config": _SWAP,
    "--kv-offloading-*": _SWAP,
    "--api-server-count": _ONE_SERVER,
    "-asc": _ONE_SERVER,
    "--data-parallel-*": _ONE_SERVER,
    "-dp*": _ONE_SERVER,
    "--enable-elastic-ep": _ONE_SERVER,
    "--headless": _ONE_SERVER,
    "--pipeline-parallel-size": _ONE_STAGE,
    "-pp": _ONE_STAGE,
    "--omni": "it starts another server than vLLM's",
    "--grpc": _PLAIN_HTTP,
    "--grpc-port": _PLAIN_HTTP,
    "--uds": _PLAIN_HTTP,
    "--ssl-*": _PLAIN_HTTP,
    "--enable-ssl-refresh": _PLAIN_HTTP,
}

#: Arguments that are read here; an abbreviation would be understood by vLLM alone.
_READ_HERE: Final = ("--model", "--scheduling", "--swap", "--open-metrics", "--host")


class InvalidArguments(ValueError):
    """The engine cannot start like this; the message is one line that names the argument."""


@dataclass(frozen=True)
class ServeArguments:
    """The arguments of ``serve``, taken apart."""

    model: str = ""
    scheduling: str = "{}"
    """JSON of the scheduling settings."""
    swap: str = "{}"
    """JSON of the settings of KV swapping."""
    open_metrics: bool = False
    """Whether ``/metrics`` answers without the engine's key."""
    help: bool = False
    passed_on: list[str] = field(default_factory=list)
    """Everything else, in order."""

    @property
    def loopback_only(self) -> bool:
        """Whether only this machine (or pod) can reach the server."""
        host = _last_value(self.passed_on, "--host")
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host or "0.0.0.0").is_loopback
        except ValueError:
            return False


def parse_serve(arguments: Sequence[str]) -> ServeArguments:
    """Takes the arguments of ``serve`` apart. Raises InvalidArguments."""
    model = scheduling = swap = None
    open_metrics = False
    passed_on: list[str] = []
    rest = iter(arguments)
    for position, argument in enumerate(rest):
        name, equals, value = argument.partition("=")
        if name in ("-h", "--help"):
            return ServeArguments(help=True)
        if name in ("--model", "--scheduling", "--swap"):
            if not equals:
                value = next(rest, "")
            if not value:
                raise InvalidArguments(f"{name}: a value is missing")
            match name:
                case "--model":
                    model = value
                case "--scheduling":
                    scheduling = value
                case _:
                    swap = value
        elif argument == "--open-metrics":
            open_metrics = True
        elif position == 0 and not argument.startswith("-"):
            model = argument
        else:
            _check_allowed(name)
            passed_on.append(argument)
    if model is None:
        raise InvalidArguments("--model: missing; give a folder or a name on the model hub")
    return ServeArguments(model, scheduling or "{}", swap or "{}", open_metrics, passed_on=passed_on)


def _check_allowed(name: str) -> None:
    if not name.startswith("-") or name == "-" or name[1:2].isdigit():
        return  # a value
    # vLLM takes underscores for dashes, `--name.key value` for a JSON argument, and abbreviations.
    given = name.partition(".")[0].rstrip("+")
    if given.startswith("--"):
        given = given.replace("_", "-")
    for pattern, reason in REFUSED.items():
        refused = pattern.rstrip("*")
        whole_family = pattern.endswith("*") and given.startswith(refused)
        if given == refused or whole_family or _abbreviates(given, refused):
            raise InvalidArguments(f"{name}: not allowed here: {reason}")
    for own in _READ_HERE:
        if _abbreviates(given, own):
            raise InvalidArguments(f"{name}: give the full name, {own}")


def _abbreviates(given: str, name: str) -> bool:
    return bool(given.strip("-")) and given != name and name.startswith(given)


def _last_value(arguments: Sequence[str], name: str) -> str | None:
    found = None
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith(name + "="):
            found = argument.removeprefix(name + "=")
    return found
