"""The command `autellix-operator`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from autellix_operator import logs
from autellix_operator.api.names import Key
from autellix_operator.settings import InvalidSettings, add_flags, load


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives its exit status. 2 is wrong usage or a wrong setting, 1 a start that failed."""
    parser = argparse.ArgumentParser(prog="autellix-operator", description="The operator of Autellix on Kubernetes.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('autellix')}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="reconcile AutellixClusters until SIGTERM",
        description="Reconciles AutellixClusters until SIGTERM, with the pod's service account or the usual "
        "kubeconfig. A flag wins over its environment variable.",
    )
    add_flags(run)
    diff = commands.add_parser(
        "diff",
        help="show what the operator would change of a cluster",
        description="Shows what a reconcile would change, a unified diff for each object, and changes nothing: "
        "`kubectl exec deploy/autellix-operator -- autellix-operator diff NAMESPACE/NAME`. A paused cluster is shown "
        "as it would be without the pause. Status 0: nothing, 1: something, 2: it cannot be told, or not "
        "all of it would be done.",
    )
    diff.add_argument("cluster", metavar="NAMESPACE/NAME", type=_key, help="the AutellixCluster")
    add_flags(diff)
    chosen = vars(parser.parse_args(arguments))
    command = chosen.pop("command")
    try:
        settings = load(chosen, os.environ)
    except InvalidSettings as error:
        print(f"autellix-operator: {error}", file=sys.stderr)
        return 2
    logs.configure(settings.log_format, settings.log_level)
    # Only now: the Kubernetes client takes most of a second to import, which a wrong setting need not wait for.
    from autellix_operator import app

    try:
        if command == "run":
            asyncio.run(app.run(settings))
            return 0
        found = asyncio.run(app.difference(settings, Key(*chosen["cluster"])))
    except app.StartError as error:
        print(f"autellix-operator: {error}", file=sys.stderr)
        return 1 if command == "run" else 2
    print("".join(found.changes), end="")
    for line in (*found.notes, *found.problems):
        print(f"autellix-operator: {line}", file=sys.stderr)
    return 2 if found.problems else 1 if found.changes else 0


def _key(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise argparse.ArgumentTypeError("must be NAMESPACE/NAME")
    return namespace, name


if __name__ == "__main__":
    sys.exit(main())
