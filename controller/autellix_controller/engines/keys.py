"""The keys that engines ask for: the one in use, and those that engines may still know instead of it.

While keys are exchanged an engine and a controller learn of it at different moments. A 401 has run nothing, so a
request that an engine refuses is sent again with the next key: none fails because of the exchange.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from autellix_controller.followed import FollowedFile

ENGINE_KEY_VARIABLE: Final = "AUTELLIX_ENGINE_KEY"

Header = tuple[bytes, bytes]


class InvalidEngineKeys(ValueError):
    """The keys are unusable; the message never shows one."""


class EngineKeys:
    """Keys in the order in which they are tried; none if engines ask for none."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self.file: FollowedFile | None = None
        """Where they come from, if that may change."""
        self.replace(keys)

    @classmethod
    def from_file(cls, path: Path) -> "EngineKeys":
        """Keys that are kept at what a file says while its ``file`` is followed. Raises InvalidEngineKeys."""
        keys = cls()

        def take(text: str) -> None:
            found = [line.strip() for line in text.splitlines() if line.strip()]
            if not found:
                raise InvalidEngineKeys("is empty; one line with the key is expected")
            keys.replace(found)

        keys.file = FollowedFile(path, take, InvalidEngineKeys, "engine keys")
        return keys

    def replace(self, keys: Sequence[str]) -> None:
        """Other keys from now on. Raises InvalidEngineKeys."""
        if not all(re.fullmatch(r"[!-~]+", key) for key in keys):
            raise InvalidEngineKeys("the key must be visible ASCII characters without spaces")
        shown = [f"Bearer {key}" for key in dict.fromkeys(keys)]
        self._headers: tuple[tuple[Header, ...], ...] = tuple(
            ((b"authorization", value.encode()),) for value in shown
        ) or ((),)
        self._mappings = tuple({"Authorization": value} for value in shown) or ({},)

    @property
    def headers(self) -> tuple[tuple[Header, ...], ...]:
        """For each key what a request carries; at least one entry."""
        return self._headers

    @property
    def mappings(self) -> tuple[dict[str, str], ...]:
        """The same as mappings."""
        return self._mappings


def engine_keys(file: Path | None, environ: Mapping[str, str] = os.environ) -> EngineKeys:
    """The keys of a file, one a line, which is to be followed; without a file the one of the environment, if any.
    Raises InvalidEngineKeys; the message names the source."""
    try:
        if file is not None:
            source = f"engine_key_file: {file}"
            return EngineKeys.from_file(file)
        source = ENGINE_KEY_VARIABLE
        key = environ.get(ENGINE_KEY_VARIABLE)
        return EngineKeys([key] if key else [])
    except InvalidEngineKeys as error:
        raise InvalidEngineKeys(f"{source}: {error}") from None
