"""The command of the engine's image: ``serve``, ``drain``."""

import importlib.metadata
import os
import sys

USAGE = """\
usage: python3 -m autellix_engine serve --model MODEL [argument ...]   start an engine; see serve --help
       python3 -m autellix_engine drain [argument ...]                 wait until no call runs; see drain --help
       python3 -m autellix_engine --version | --help
"""


def main() -> int:
    """Runs one command; each imports what it needs alone, since both have to start fast."""
    command, *arguments = sys.argv[1:] or [""]
    match command:
        case "serve":
            from autellix_engine.launcher.serve import serve

            return serve(arguments, os.environ)
        case "drain":
            from autellix_engine import drain

            return drain.main(arguments, os.environ)
        case "--version":
            print(f"autellix-engine {importlib.metadata.version('autellix')}")
            return 0
        case "-h" | "--help":
            print(USAGE, end="")
            return 0
        case _:
            problem = f"{command!r} is not a command" if command else "a command is missing"
            print(f"autellix-engine: {problem}\n{USAGE}", end="", file=sys.stderr)
            return 2


if __name__ == "__main__":
    raise SystemExit(main())
