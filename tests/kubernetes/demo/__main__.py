"""``python -m demo up|down``: plays the demo, or removes what it left."""

import argparse
import sys

from onenode.errors import OnenodeError
from onenode.lab import Lab
from onenode.layout import default_lab_folder
from onenode.target import chosen_context


def main() -> int:
    """Runs one command; the status for the shell."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    command = parser.parse_args().command
    folder = default_lab_folder("demo")
    lab = Lab(folder)
    try:
        if command == "down":
            _down(lab)
            return 0
        # Imported here: `down` has to work where the environment of the project is gone.
        from demo import story

        story.play(story.prepare(lab, _tell), _tell)
        _tell(story.how_to_go_on(folder))
    except OnenodeError as failed:
        print(f"demo: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; `make demo-down` removes what is running", file=sys.stderr)
        return 130
    return 0


def _down(lab: Lab) -> None:
    named = chosen_context(installs=False)
    if named is None:
        lab.down()
    else:
        from demo import story

        story.elsewhere(named).remove()


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
