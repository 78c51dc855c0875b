"""Image archives made without a build tool, for images whose files are at hand."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """An image of one layer. ``files`` are copied, ``links`` are symbolic, ``texts`` are written; by absolute path.

    ``name`` is fully qualified (``localhost/pause:dev``): containerd takes any other for one of the public registry.
    """

    name: str
    entrypoint: Sequence[str]
    files: Mapping[str, Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    user: str = ""


def write_archive(image: Image, archive: Path) -> None:
    """Writes an OCI image layout as one tar. The layer is not compressed: it is read once, from a disk nearby."""
    layer = archive.with_suffix(".layer")
    try:
        _write_layer(image, layer)
        with layer.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        with tarfile.open(archive, "w") as tar:
            tar.add(layer, f"blobs/sha256/{digest}", filter=_without_history)
            kind = "application/vnd.oci.image.layer.v1.tar"
            described = {"mediaType": kind, "digest": f"sha256:{digest}", "size": layer.stat().st_size}
            _write_metadata(tar, image, described)
    finally:
        layer.unlink(missing_ok=True)


def _write_layer(image: Image, path: Path) -> None:
    with tarfile.open(path, "w") as layer:
        for name in image.folders:
            _add(layer, _entry(name, kind=tarfile.DIRTYPE, mode=0o1777 if name == "/tmp" else 0o755))
        for name, target in image.links.items():
            link = _entry(name, kind=tarfile.SYMTYPE, mode=0o777)
            link.linkname = target
            _add(layer, link)
        for name, text in image.texts.items():
            _add(layer, _entry(name, mode=0o644), text.encode())
        for name, source in image.files.items():
            layer.add(source.resolve(), name.lstrip("/"), filter=_without_history)


def _write_metadata(tar: tarfile.TarFile, image: Image, layer: dict[str, Any]) -> None:
    platform = {"architecture": "amd64", "os": "linux"}
    runtime = {"Entrypoint": list(image.entrypoint), "Env": [_PATH], "User": image.user}
    config = {**platform, "config": runtime, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(tar, config, "application/vnd.oci.image.config.v1+json"),
        "layers": [layer],
    }
    entry = {
        **_blob(tar, manifest, manifest["mediaType"]),
        "platform": platform,
        "annotations": {"io.containerd.image.name": image.name},
    }
    _add(tar, _entry("oci-layout"), b'{"imageLayoutVersion": "1.0.0"}')
    _add(tar, _entry("index.json"), json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())


def _blob(tar: tarfile.TarFile, document: dict[str, Any], media_type: Any) -> dict[str, Any]:
    content = json.dumps(document).encode()
    digest = hashlib.sha256(content).hexdigest()
    _add(tar, _entry(f"blobs/sha256/{digest}"), content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _entry(name: str, *, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.type, entry.mode = kind, mode
    return entry


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, content: bytes = b"") -> None:
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _without_history(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same bytes for the same content, whoever built it and when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
