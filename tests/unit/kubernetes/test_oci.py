import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from onenode.oci import Image, write_archive


def written(folder: Path, name: str = "a") -> Path:
    program = folder / "program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    image = Image(
        "localhost/thing:dev",
        ["/thing"],
        files={"/bin/thing": program},
        links={"/bin/other": "thing"},
        texts={"/etc/hosts": "none\n"},
        folders=["/tmp", "/bin"],
        user="65532",
    )
    archive = folder / f"{name}.tar"
    write_archive(image, archive)
    return archive


def blob(tar: tarfile.TarFile, digest: str) -> bytes:
    content = tar.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
    assert content is not None
    return content.read()


def documents(tar: tarfile.TarFile) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    index = tar.extractfile("index.json")
    assert index is not None
    (entry,) = json.load(index)["manifests"]
    manifest = json.loads(blob(tar, entry["digest"]))
    return entry, manifest, json.loads(blob(tar, manifest["config"]["digest"]))


def test_every_digest_and_size_is_that_of_its_content(tmp_path: Path) -> None:
    with tarfile.open(written(tmp_path)) as tar:
        entry, manifest, config = documents(tar)
        for described in (entry, manifest["config"], *manifest["layers"]):
            content = blob(tar, described["digest"])
            assert described["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
            assert described["size"] == len(content)
        assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]


def test_the_archive_names_the_image_its_entrypoint_and_its_user(tmp_path: Path) -> None:
    with tarfile.open(written(tmp_path)) as tar:
        entry, _, config = documents(tar)
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/thing:dev"
    assert config["config"]["Entrypoint"] == ["/thing"]
    assert config["config"]["User"] == "65532"


def test_the_layer_holds_files_links_texts_and_a_tmp_for_all(tmp_path: Path) -> None:
    with tarfile.open(written(tmp_path)) as tar:
        _, manifest, _ = documents(tar)
        (tmp_path / "layer").write_bytes(blob(tar, manifest["layers"][0]["digest"]))
    with tarfile.open(tmp_path / "layer") as layer:
        assert layer.getmember("bin/thing").mode == 0o755
        assert layer.getmember("bin/other").linkname == "thing"
        assert layer.getmember("etc/hosts").size == 5
        assert layer.getmember("tmp").mode == 0o1777
        assert {(member.uid, member.gid, member.mtime) for member in layer} == {(0, 0, 0)}


def test_the_same_content_gives_the_same_bytes_and_nothing_else_is_left(tmp_path: Path) -> None:
    assert written(tmp_path, "a").read_bytes() == written(tmp_path, "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar", "program"]
