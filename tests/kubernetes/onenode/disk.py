"""What a run still has to write to disks, so that a full one is told before anything long is begun."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onenode.cache import cache_folder

#: Rounded from a first run: compiled programs and Go's caches 5.7; Python packages 6.2; base and images 0.7.
GO_GIB, PYTHON_GIB, IMAGES_GIB = 6.0, 6.0, 1.0


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Space on the disk of a folder, which may still have to be made."""

    folder: Path
    gib: float

    @property
    def existing(self) -> Path:
        """The folder, or the nearest above it that is there."""
        return next(parent for parent in (self.folder, *self.folder.parents) if parent.exists())

    @property
    def disk(self) -> int:
        """The number of the device that the folder is on."""
        return self.existing.stat().st_dev


def still_to_be_made(environment: Mapping[str, str], checkout: Path) -> list[DiskNeed]:
    """What a run fills caches with that are not filled yet, by the cache: nothing when all are warm.

    It looks for the largest thing in each cache alone. What has only changed since is small beside that.
    """
    return list(_needs(environment, checkout))


def _needs(environment: Mapping[str, str], checkout: Path) -> Iterator[DiskNeed]:
    ours = cache_folder(environment)
    users = ours.parent
    if not any((ours / "programs").glob("kube-*/kube")):
        yield DiskNeed(Path(environment.get("GOCACHE") or users / "go-build"), GO_GIB)
    packages = Path(environment.get("UV_CACHE_DIR") or users / "uv")
    if not (checkout / ".venv" / ".synced").exists():
        if not any(packages.glob("archive-*/*/vllm")):
            yield DiskNeed(packages, PYTHON_GIB)
        environment_here = DiskNeed(checkout / ".venv", PYTHON_GIB)
        if environment_here.disk != DiskNeed(packages, 0).disk:  # else it is made of links into the cache
            yield environment_here
    if not any((ours / "images").glob("base-*/base.tar")):
        yield DiskNeed(ours / "images", IMAGES_GIB)
