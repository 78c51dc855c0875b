"""Writes the reference pages that follow from the code: ``python -m autellix_controller.reference FOLDER``."""

import json
import sys
from pathlib import Path

from autellix_controller import openapi
from autellix_controller.settings import ENV_PREFIX, Settings, shown_default


def settings_page() -> str:
    """All settings of the controller, as Markdown."""
    lines = [
        "# Settings of the controller",
        "",
        "Written by `make reference` from the model that checks them. A flag wins over the variable, the variable",
        "over the YAML file that `--config` names. Of setting `max_calls` the flag is `--max-calls`, the variable",
        f"`{ENV_PREFIX}MAX_CALLS`, the key in the file `max_calls`.",
        "",
        "| setting | default | what it is |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = shown_default(field)
        text = str(field.description).replace("|", "\\|")
        lines.append(f"| `{name}` | {f'`{default}`' if default else ''} | {text} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {
        "openapi.json": json.dumps(openapi.document(), indent=2) + "\n",
        "controller-settings.md": settings_page(),
    }


def main(folder: str) -> None:
    """Writes all pages into the folder."""
    for name, text in pages().items():
        (Path(folder) / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
