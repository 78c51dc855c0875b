"""The command ``autellix-controller``: serves by default; ``programs`` prints the process table, ``prove`` checks a
cluster that serves."""

import argparse
import asyncio
import os
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec
import uvloop

from autellix_controller import files, listing, logs, proof, server
from autellix_controller.access import InvalidKeys, KeysFile
from autellix_controller.engines.keys import InvalidEngineKeys, engine_keys
from autellix_controller.sessions.api import describe
from autellix_controller.settings import InvalidSettings, Settings, TableSettings, add_arguments, load
from autellix_controller.table.interface import TableUnavailable
from autellix_controller.table.reader import read_programs
from autellix_controller.table.urls import InvalidTable

#: Holds the API key with which ``prove`` calls.
KEY_VARIABLE: Final = "AUTELLIX_API_KEY"


def command_line() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    parser = argparse.ArgumentParser(
        prog="autellix-controller",
        description="OpenAI-compatible gateway that routes and accounts calls by program.",
        epilog="A flag wins over its variable (in brackets), the variable over the file given by --config.",
    )
    add_arguments(parser, Settings)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    programs = commands.add_parser("programs", help="print the process table", description="Prints the process table.")
    add_arguments(programs, TableSettings)
    programs.add_argument("-o", "--output", choices=("table", "json"), default="table", help="form [default table]")
    programs.add_argument("--all", action="store_true", help="programs that ended as well")
    prove = commands.add_parser(
        "prove",
        help="check on a cluster that serves that short programs come first, keep their pin and bring receipts",
        description="Sends long calls and a short program to a cluster; fails unless the short program ends first, "
        f"keeps its pin and is accounted for. A key, if the cluster wants one, is read from {KEY_VARIABLE}.",
    )
    prove.add_argument("endpoint", metavar="URL", help="of the OpenAI API, such as http://agents.demo.svc/v1")
    prove.add_argument(
        "--long-calls",
        type=_positive,
        default=2,
        metavar="N",
        help="long calls at the same time; the order shows where they hold every slot [default 2]",
    )
    prove.add_argument(
        "--long-tokens",
        type=_positive,
        default=512,
        metavar="N",
        help="tokens of a long call, more in repeats [default 512]",
    )
    prove.add_argument("--seconds", type=_positive, default=300, metavar="N", help="for all of it [default 300]")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 up")
    return number


def _refuse(message: str, status: int = 2) -> NoReturn:
    print(f"autellix-controller: {message}", file=sys.stderr)
    raise SystemExit(status)


def _programs(arguments: argparse.Namespace) -> None:
    try:
        settings = load(TableSettings, vars(arguments))
        entries = asyncio.run(read_programs(settings.table, settings.table_prefix, settings.etcd_access))
    except (InvalidSettings, InvalidTable) as error:
        _refuse(str(error))
    except TableUnavailable as error:
        _refuse(f"the process table cannot be read: {error}", status=1)
    shown = [entry for entry in entries if arguments.all or entry.state == "active"]
    if arguments.output == "json":
        described = [{**describe(entry), "owner": entry.owner, "state": entry.state} for entry in shown]
        print(msgspec.json.format(msgspec.json.encode(described)).decode())
    else:
        print(listing.render(shown, time.time_ns() // 1_000_000))


def _prove(arguments: argparse.Namespace) -> None:
    plan = proof.Plan(
        run=f"prove-{secrets.token_hex(4)}",
        long_calls=arguments.long_calls,
        long_tokens=arguments.long_tokens,
        seconds=arguments.seconds,
    )
    try:
        found = asyncio.run(proof.prove(arguments.endpoint, os.environ.get(KEY_VARIABLE) or None, plan))
    except proof.Unproven as error:
        _refuse(f"not proved: {error}", status=1)
    for line in found:
        print(f"proved: {line}")


def _serve(arguments: argparse.Namespace) -> None:
    try:
        settings = load(Settings, vars(arguments))
        shown = engine_keys(settings.engine_key_file)
        keys = KeysFile(settings.api_keys_file) if settings.api_keys_file else None
    except (InvalidSettings, InvalidEngineKeys) as error:
        _refuse(str(error))
    except InvalidKeys as error:
        _refuse(f"api_keys_file: {error}")
    if settings.trace_endpoint is not None:
        try:
            import autellix_controller.tracing  # noqa: F401 - whether it is there
        except ImportError:
            _refuse("trace_endpoint: traces need the extra `tracing`: pip install 'autellix[tracing]'")
    try:
        sock = server.listen(settings)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        _refuse(f"listen: cannot listen on {settings.listen}: {reason}")
    logs.configure(settings.log_level)
    files.raise_limit(settings.max_calls)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(settings, sock, keys=keys, engine_keys=shown))
    except InvalidTable as error:
        _refuse(str(error), status=1)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 2 if a setting is wrong."""
    arguments = command_line().parse_args(argv)
    if arguments.command == "programs":
        _programs(arguments)
    elif arguments.command == "prove":
        _prove(arguments)
    else:
        _serve(arguments)


if __name__ == "__main__":
    main()
