"""The command ``python3 -m onenode``."""

import sys

# It runs with whatever `python3` a machine has, before the project's environment exists.
if sys.version_info < (3, 11):  # noqa: UP036
    # No f-string: even Python 2 has to be able to read the message.
    sys.exit("error: it needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try PYTHON=python3.11")

from onenode.cli import main

sys.exit(main(sys.argv[1:]))
