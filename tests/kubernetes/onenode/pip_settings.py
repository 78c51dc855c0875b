"""How pip on this machine reaches its index. A build is lent these settings; no image ever holds them."""

import configparser
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_PASSED_ON = ("index-url", "extra-index-url", "trusted-host", "proxy", "cert", "timeout")


def configuration_files(environment: Mapping[str, str]) -> list[Path]:
    """The files that pip reads, those that count more last."""
    home = Path(environment.get("HOME", "/root"))
    user = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    named = environment.get("PIP_CONFIG_FILE")
    return [
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        user / "pip" / "pip.conf",
        *([Path(named)] if named else []),
    ]


def pip_settings(files: Sequence[Path], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings that matter for reaching an index: from files, then from ``PIP_...`` variables."""
    parser = configparser.RawConfigParser()
    parser.read(files)
    settings = dict(parser["global"]) if parser.has_section("global") else {}
    for name in _PASSED_ON:
        value = environment.get(f"PIP_{name.upper().replace('-', '_')}")
        if value:
            settings[name] = value
    return {name: settings[name] for name in _PASSED_ON if name in settings}


def pip_conf(settings: Mapping[str, str]) -> str:
    """A pip.conf with these settings."""
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items()), ""])
