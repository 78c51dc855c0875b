"""Building from Dockerfiles without a daemon or a registry: buildah on a base made of Debian packages."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from onenode import debian
from onenode.cache import cache_folder, digest, locked, published
from onenode.commands import output
from onenode.pip_settings import configuration_files, pip_conf, pip_settings
from onenode.prerequisites import check_build, check_privileges
from onenode.progress import run

# The base of images in tests, where no registry can be had: Debian with Python, like the official images but smaller.
_SUITE = "bookworm"
_PACKAGES = ("usr-is-merged", "python3", "python3-venv")
_LEFT_OUT = ("doc", "info", "lintian", "locale", "man")
_BASE_IMAGE = "localhost/autellix-base"
_STORE_LIMIT_BYTES = 6 << 30


def base_archive() -> Path:
    """The root file system of the base, as a tar in the cache; made from Debian packages in about a minute."""
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(_PACKAGES)}",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        _SUITE,
    ]

    def make(target: Path) -> None:
        check_privileges()
        debian.provide(debian.IMAGE_TOOLS)
        check_build(cache_folder())
        log = cache_folder() / "logs" / "base.log"
        run([*command, target / "base.tar"], what="base image: installing Debian packages into it", log=log)

    name = f"base-{digest([('command', json.dumps(command).encode())])}"
    return published(cache_folder() / "images" / name, make, "making the base image") / "base.tar"


def build(image: str, dockerfile: Path, context: Path, archive: Path) -> None:
    """Builds an image on our base and writes it as an OCI archive. Raises OnenodeError when a step fails."""
    check_privileges()
    base = base_archive()
    debian.provide(debian.IMAGE_TOOLS)
    folder = cache_folder() / "buildah"
    log = cache_folder() / "logs" / f"image-{image.split('/')[-1].replace(':', '-')}.log"
    with locked(folder / "lock", f"building {image}"), tempfile.TemporaryDirectory() as scratch:
        buildah = _Buildah(folder / "store", log)
        name = buildah.base_image(base)
        settings = pip_settings(configuration_files(os.environ))
        buildah.run(
            f"{image}: building",
            "build",
            "--layers",
            "--pull=false",
            "--isolation=chroot",
            "--network=host",
            *_lent_settings(settings, Path(scratch)),
            f"--build-arg=BASE={name}",
            f"--build-arg=BUILD_BASE={name}",
            f"--file={dockerfile}",
            f"--tag={image}",
            str(context),
        )
        buildah.run(f"{image}: writing", "push", image, f"oci-archive:{archive}:{image}")


class _Buildah:
    """Buildah with a store of our own, in a mount namespace of its own so that its mounts never stay behind."""

    def __init__(self, store: Path, log: Path) -> None:
        self._log = log
        _drop_if_large(store)
        store.mkdir(parents=True, exist_ok=True)
        private = ["unshare", "--mount", "--propagation", "private"]
        places = [f"--root={store / 'images'}", f"--runroot={store / 'run'}", "--storage-driver=overlay"]
        self._command = [*private, "buildah", *places]

    def base_image(self, archive: Path) -> str:
        """The name of the base in the store, put there if it is missing."""
        name = f"{_BASE_IMAGE}:{archive.parent.name}"
        if not self._output("images", "--quiet", "--filter", f"reference={name}"):
            container = self._output("from", "scratch")
            try:
                self.run("base image: reading", "add", container, str(archive), "/")
                self.run("base image: writing", "commit", container, name)
            finally:
                self._output("rm", container)
        return name

    def run(self, what: str, *arguments: str) -> None:
        """Runs one command with progress; what it prints goes to the log."""
        run([*self._command, *arguments], what=what, log=self._log)

    def _output(self, *arguments: str) -> str:
        return output([*self._command, *arguments], what=f"buildah {' '.join(arguments)}").strip()


def _lent_settings(settings: Mapping[str, str], scratch: Path) -> Iterator[str]:
    """Mounts for the time of the build: pip's settings and the certificates that the machine trusts."""
    if settings:
        file = scratch / "pip.conf"
        file.write_text(pip_conf(settings))
        yield f"--volume={file}:/etc/pip.conf:ro"
    if Path("/etc/ssl/certs").is_dir():
        yield "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"
    if "cert" in settings and not settings["cert"].startswith("/etc/ssl/certs/"):
        yield f"--volume={settings['cert']}:{settings['cert']}:ro"


def _drop_if_large(store: Path) -> None:
    """Layers of past builds make the next one fast; when they have become too many, all go."""
    size = sum(file.stat(follow_symlinks=False).st_size for file in store.rglob("*")) if store.exists() else 0
    if size > _STORE_LIMIT_BYTES:
        shutil.rmtree(store)
