"""What the images are built from: a private copy of the files that .dockerignore lets in, and a name for it.

The copy is what is named and what is built, so a file that changes in between cannot make a cached image lie.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from onenode.cache import digest

_NEVER = {"__pycache__"}


def allowed_paths(dockerignore: str) -> list[str]:
    """The paths that a .dockerignore which begins with ``*`` takes back by ``!``."""
    lines = [line.strip() for line in dockerignore.splitlines() if line.strip() and not line.startswith("#")]
    if lines[:1] != ["*"]:
        raise ValueError("the .dockerignore must begin with `*`: only what it names goes into images")
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def copy(repository: Path, target: Path, extra: Path) -> str:
    """Copies the context of an image to ``target``, with the file ``extra`` (its Dockerfile); returns a digest."""
    for file in _files(repository):
        copied = target / file.relative_to(repository)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copied)
    shutil.copyfile(extra, target / extra.name)
    return digest(
        (str(file.relative_to(target)), file.read_bytes()) for file in sorted(target.rglob("*")) if file.is_file()
    )


def _files(repository: Path) -> Iterator[Path]:
    for name in allowed_paths((repository / ".dockerignore").read_text()):
        path = repository / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and not _NEVER & set(file.parts):
                yield file
