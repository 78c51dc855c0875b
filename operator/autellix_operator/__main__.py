"""The command `autellix-operator`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from autellix_operator import logs
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
    chosen = parser.parse_args(arguments)
    try:
        settings = load(vars(chosen), os.environ)
    except InvalidSettings as error:
        print(f"autellix-operator: {error}", file=sys.stderr)
        return 2
    logs.configure(settings.log_format, settings.log_level)
    # Only now: the Kubernetes client takes most of a second to import, which a wrong setting need not wait for.
    from autellix_operator.app import StartError
    from autellix_operator.app import run as run_operator

    try:
        asyncio.run(run_operator(settings))
    except StartError as error:
        print(f"autellix-operator: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
