from pathlib import Path

import pytest

from onenode import build_context, images


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name in ("app/main.py", "app/__pycache__/main.pyc", "secret.txt", "Dockerfile"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / ".dockerignore").write_text("# comment\n*\n!app\n**/__pycache__\n")
    return root


def copied(repository: Path, target: Path) -> tuple[str, set[str]]:
    digest = build_context.copy(repository, target, repository / "Dockerfile")
    return digest, {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}


def test_only_what_the_dockerignore_lets_in_reaches_an_image(repository: Path, tmp_path: Path) -> None:
    assert copied(repository, tmp_path / "context")[1] == {"app/main.py", "Dockerfile"}


def test_the_digest_changes_with_the_content_and_with_nothing_else(repository: Path, tmp_path: Path) -> None:
    first, _ = copied(repository, tmp_path / "1")
    (repository / "secret.txt").write_text("changed")
    (repository / "app" / "main.py").touch()
    assert copied(repository, tmp_path / "2")[0] == first
    (repository / "app" / "main.py").write_text("changed")
    second, _ = copied(repository, tmp_path / "3")
    (repository / "Dockerfile").write_text("changed")
    assert len({first, second, copied(repository, tmp_path / "4")[0]}) == 3


def test_a_dockerignore_that_lets_everything_in_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with"):
        build_context.allowed_paths("!app\n")


def test_every_path_that_this_repositorys_dockerignore_names_exists() -> None:
    names = build_context.allowed_paths((images.REPOSITORY / ".dockerignore").read_text())
    assert [name for name in names if not (images.REPOSITORY / name).exists()] == []
