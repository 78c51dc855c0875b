from pathlib import Path

from onenode.pip_settings import configuration_files, pip_conf, pip_settings


def test_later_files_and_variables_win_and_only_what_reaches_an_index_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "site").write_text(
        "[global]\nindex-url = https://one.example/simple\ncert = /ca.pem\nno-color = true\n"
    )
    (tmp_path / "user").write_text("[global]\nindex-url = https://two.example/simple\n[install]\nuser = true\n")
    files = [tmp_path / "site", tmp_path / "missing", tmp_path / "user"]
    assert pip_settings(files, {}) == {"index-url": "https://two.example/simple", "cert": "/ca.pem"}
    variables = {"PIP_CERT": "/other.pem", "PIP_NO_INPUT": "1"}
    assert pip_settings(files, variables) == {"index-url": "https://two.example/simple", "cert": "/other.pem"}


def test_a_machine_without_settings_lends_none() -> None:
    assert pip_settings([], {}) == {}


def test_settings_are_written_as_pip_reads_them(tmp_path: Path) -> None:
    settings = {"index-url": "https://one.example/simple?a=%20b", "timeout": "60"}
    (tmp_path / "pip.conf").write_text(pip_conf(settings))
    assert pip_settings([tmp_path / "pip.conf"], {}) == settings


def test_the_file_that_is_named_counts_most() -> None:
    files = configuration_files({"HOME": "/home/a", "PIP_CONFIG_FILE": "/named.conf"})
    assert files[0] == Path("/etc/pip.conf")
    assert files[-2:] == [Path("/home/a/.config/pip/pip.conf"), Path("/named.conf")]
