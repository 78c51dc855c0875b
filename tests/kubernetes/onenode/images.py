"""The images of the project and of its tests, as archives in the cache."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from onenode import build_context, buildah
from onenode.binaries import binary
from onenode.cache import cache_folder, digest, prune, published
from onenode.configuration import PAUSE_IMAGE
from onenode.oci import Image, write_archive

REPOSITORY = Path(__file__).resolve().parents[3]
IMAGES = {
    "operator": "localhost/autellix-operator:dev",
    "controller": "localhost/autellix-controller:dev",
    "engine": "localhost/autellix-engine:dev",
    "etcd": "localhost/etcd:dev",
}
_DOCKERFILES = {
    "operator": "operator/Dockerfile",
    "controller": "controller/Dockerfile",
    "engine": "engine_image/Dockerfile",
}


def archive(name: str) -> Path:
    """The archive of one of IMAGES, built if its sources have changed since the last time."""
    return etcd_image() if name == "etcd" else _built_image(name)


def archives() -> list[Path]:
    """The archives of all IMAGES."""
    return [archive(name) for name in IMAGES]


def pause_image() -> Path:
    """The archive of the image that holds a pod's namespaces."""
    return _written(Image(PAUSE_IMAGE, ["/pause"], files={"/pause": binary("pause")}))


def etcd_image() -> Path:
    """The archive of an image with ``etcd`` on its PATH, for the process table."""
    return _written(
        Image(
            IMAGES["etcd"],
            ["etcd"],
            folders=["/tmp", "/etc", "/usr", "/usr/local", "/usr/local/bin"],
            files={"/usr/local/bin/kube": binary("kube")},
            links={"/usr/local/bin/etcd": "kube"},
            texts={"/etc/nsswitch.conf": "hosts: files dns\n"},
            user="65532:65532",
        )
    )


def _built_image(name: str) -> Path:
    dockerfile = REPOSITORY / _DOCKERFILES[name]
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch)
        content = build_context.copy(REPOSITORY, context, dockerfile)
        ingredients = [("context", content.encode()), ("base", buildah.base_archive().parent.name.encode())]
        return _published(
            f"{name}-{digest(ingredients)}",
            lambda target: buildah.build(IMAGES[name], context / dockerfile.name, context, target / "image.tar"),
        )


def _written(image: Image) -> Path:
    # The programs' folders are named by what they are made of, so their paths stand for their content.
    name = image.name.split("/")[-1].replace(":", "-")
    ingredients = [("image", repr(image).encode())]
    return _published(f"{name}-{digest(ingredients)}", lambda target: write_archive(image, target / "image.tar"))


def _published(name: str, make: Callable[[Path], None]) -> Path:
    folder = cache_folder() / "images"

    def make_and_prune(target: Path) -> None:
        make(target)
        prune(folder)

    return published(folder / name, make_and_prune, f"making the image {name}") / "image.tar"
