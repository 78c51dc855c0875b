"""The commands, their arguments and how errors are shown."""

import argparse
import os
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import FrameType

from onenode import debian, namespaces
from onenode.binaries import ON_DEMAND, PROGRAMS, binary
from onenode.disk import still_to_be_made
from onenode.errors import OnenodeError
from onenode.images import IMAGES, REPOSITORY, archive
from onenode.lab import Lab
from onenode.layout import default_lab_folder
from onenode.prerequisites import LAB_MEMORY_GIB, check_lab, check_privileges
from onenode.progress import say
from onenode.target import CONTEXT_VARIABLE


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit status of the process. A signal to end unwinds, so nothing is left behind."""
    signal.signal(signal.SIGTERM, _unwind)
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except OnenodeError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 128 + signal.SIGINT
    return status


def _unwind(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="onenode", description="A throw-away one-node Kubernetes.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    check = commands.add_parser(
        "check", help="make sure that this machine can build images and run a cluster; install what is missing"
    )
    check.add_argument(
        "--memory-gib",
        type=float,
        default=LAB_MEMORY_GIB,
        help="free memory that the pods need too; default: %(default)s",
    )
    check.set_defaults(command=_check)

    tools = commands.add_parser("tools", help="make sure that these tools are there; install what is missing")
    tools.add_argument("names", nargs="+", metavar="NAME", help=f"any of {', '.join(debian.PACKAGES)}")
    tools.set_defaults(command=_tools)

    build = commands.add_parser(
        "build", help="build programs of the cluster, unless they are cached; print their paths"
    )
    build.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(PROGRAMS)}: by default all; {', '.join(ON_DEMAND)}"
    )
    build.set_defaults(command=_build)

    images = commands.add_parser("images", help="build images, unless they are cached; print names and archives")
    images.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(IMAGES)}; default: all")
    images.set_defaults(command=_images)

    up = _lab_command(commands, "up", "start the cluster anew")
    up.add_argument(
        "--image", dest="images", action="append", default=[], help="import this image too; may be repeated"
    )
    up.set_defaults(command=_up)

    _lab_command(commands, "down", "end the cluster and remove all it left").set_defaults(command=_down)
    _lab_command(commands, "shell", "a shell that sees the cluster's network and names").set_defaults(command=_shell)
    execute = _lab_command(commands, "exec", "run a command in the cluster's network")
    execute.add_argument("--names", action="store_true", help="in its mounts too, so that names of Services resolve")
    execute.add_argument("words", nargs="+", metavar="WORD", help="the command; put -- before it")
    execute.set_defaults(command=_exec)

    commands.add_parser("status", help="list the labs that run on this machine").set_defaults(command=_status)
    return parser


def _lab_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, explanation: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=explanation)
    default = default_lab_folder("shell")
    command.add_argument("--lab", type=Path, default=default, metavar="FOLDER", help=f"its folder; default: {default}")
    return command


def _check(options: argparse.Namespace) -> int:
    if not os.environ.get(CONTEXT_VARIABLE):
        tools = (*debian.LAB_TOOLS, *debian.IMAGE_TOOLS)
        needs = still_to_be_made(os.environ, REPOSITORY)
        check_lab(default_lab_folder("demo"), memory_gib=options.memory_gib, needs=needs, tools=tools)
    return 0


def _tools(options: argparse.Namespace) -> int:
    debian.provide(_known(options.names, debian.PACKAGES, "tool"))
    return 0


def _build(options: argparse.Namespace) -> int:
    for name in _known(options.names, PROGRAMS | ON_DEMAND, "program") if options.names else PROGRAMS:
        print(binary(name))
    return 0


def _images(options: argparse.Namespace) -> int:
    for name in _known(options.names, IMAGES, "image"):
        print(IMAGES[name], archive(name))
    return 0


def _known(names: Sequence[str], known: Collection[str], what: str) -> Sequence[str]:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise OnenodeError(f"no {what} is called {', '.join(unknown)}; there are {', '.join(known)}")
    return names or list(known)


def _up(options: argparse.Namespace) -> int:
    lab = Lab(options.lab)
    names = _known(options.images, IMAGES, "image") if options.images else []
    lab.up([archive(name) for name in names])
    say(f"kubeconfig: {lab.kubeconfig} (reachable in the lab's network only)")
    return 0


def _down(options: argparse.Namespace) -> int:
    Lab(options.lab).down()
    return 0


def _shell(options: argparse.Namespace) -> int:
    lab = Lab(options.lab)
    # The prompt is the shell's own: what is different here is said once.
    say(f"a shell in the network of {options.lab}, with its kubectl and helm; `exit` leaves it")
    return _replace(lab, [os.environ.get("SHELL", "/bin/bash")], names=True)


def _exec(options: argparse.Namespace) -> int:
    return _replace(Lab(options.lab), options.words, names=options.names)


def _replace(lab: Lab, words: Sequence[str], *, names: bool) -> int:
    check_privileges()
    command = lab.command(words, names=names)
    os.execvpe(command[0], command, lab.environment())


def _status(_: argparse.Namespace) -> int:
    for folder in namespaces.running_labs():
        print(folder)
    return 0
