"""``python -m demo up|down``: plays the demo, or removes what it left."""

import argparse
import os
import sys
from pathlib import Path

from onenode.errors import OnenodeError
from onenode.lab import Lab

#: Short, because the paths of sockets below it may have 107 bytes only.
FOLDER = Path(f"/tmp/autellix-demo-{os.getuid()}")


def main() -> int:
    """Runs one command; the status for the shell."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    command = parser.parse_args().command
    lab = Lab(FOLDER)
    try:
        if command == "down":
            lab.down()
            return 0
        # Imported here: `down` has to work where the environment of the project is gone.
        from demo import story
        from support.installation import Installation, local_images

        story.play(lab, _tell)
        _tell(story.how_to_go_on(Installation(lab, local_images()), FOLDER))
    except (OnenodeError, TimeoutError) as failed:
        print(f"demo: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; `make demo-down` removes what is running", file=sys.stderr)
        return 130
    return 0


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
