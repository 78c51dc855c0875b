from pathlib import Path

import pytest

from onenode.errors import OnenodeError
from onenode.layout import Layout


def test_labs_in_different_folders_share_no_name_and_no_path() -> None:
    one, two = Layout(Path("/tmp/one")), Layout(Path("/tmp/two"))
    assert one.cgroup != two.cgroup
    assert one.process_mark != two.process_mark
    assert not {one.containerd_socket, *one.folders} & {two.containerd_socket, *two.folders}


def test_a_lab_has_the_same_names_in_every_process() -> None:
    assert Layout(Path("/tmp/one")).cgroup == "autellix-lab-02c3a714b58d"


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(OnenodeError, match="must be absolute, not lab"):
        Layout(Path("lab"))


def test_a_folder_whose_socket_would_be_too_long_is_refused() -> None:
    longest = Path("/" + "x" * (107 - len("/containerd.sock") - 1))
    assert len(str(Layout(longest).containerd_socket)) == 107
    with pytest.raises(OnenodeError, match="too long"):
        Layout(Path(f"{longest}x"))
