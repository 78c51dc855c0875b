"""The commands, their arguments and how errors are shown."""

import argparse
from collections.abc import Sequence

from onenode.binaries import PROGRAMS, binary
from onenode.errors import OnenodeError
from onenode.progress import say


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit status of the process."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except OnenodeError as error:
        say(f"error: {error}")
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="onenode", description="A throw-away one-node Kubernetes.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser(
        "build", help="build programs of the cluster, unless they are cached; print their paths"
    )
    build.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(PROGRAMS)}; default: all")
    build.set_defaults(command=_build)
    return parser


def _build(options: argparse.Namespace) -> int:
    unknown = set(options.names) - set(PROGRAMS)
    if unknown:
        raise OnenodeError(f"no program is called {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    for name in options.names or PROGRAMS:
        print(binary(name))
    return 0
