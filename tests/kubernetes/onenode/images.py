"""The images of the project and of its tests, as archives in the cache."""

from pathlib import Path

from onenode.binaries import binary
from onenode.cache import cache_folder, digest, published
from onenode.configuration import PAUSE_IMAGE
from onenode.oci import Image, write_archive

ETCD_IMAGE = "localhost/etcd:dev"


def pause_image() -> Path:
    """The archive of the image that holds a pod's namespaces."""
    return _written(Image(PAUSE_IMAGE, ["/pause"], files={"/pause": binary("pause")}))


def etcd_image() -> Path:
    """The archive of an image with ``etcd`` on its PATH, for the process table."""
    programs = {"/usr/local/bin/kube": binary("kube")}
    return _written(
        Image(
            ETCD_IMAGE,
            ["etcd"],
            folders=["/tmp", "/etc", "/usr", "/usr/local", "/usr/local/bin"],
            files=programs,
            links={"/usr/local/bin/etcd": "kube"},
            texts={"/etc/nsswitch.conf": "hosts: files dns\n"},
            user="65532:65532",
        )
    )


def _written(image: Image) -> Path:
    name = image.name.split("/")[-1].replace(":", "-")
    # The programs' own folders are named by what they are made of, so their paths stand for their content.
    folder = cache_folder() / "images" / f"{name}-{digest([('image', repr(image).encode())])}"
    return (
        published(folder, lambda target: write_archive(image, target / "image.tar"), f"writing {image.name}")
        / "image.tar"
    )
