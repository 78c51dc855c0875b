"""The command ``python3 -m onenode``."""

import sys

from onenode.cli import main

sys.exit(main(sys.argv[1:]))
