"""The keys with which the engine lets callers in: one from the environment, or those of a file that may change.

Several keys at once make it possible to exchange them: the engine knows the new one before anybody uses it. The file
is a mounted Secret, which Kubernetes replaces in place, so a new key takes no new engine.
"""

import hashlib
import hmac
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from autellix_engine.launcher import handover
from autellix_wire.mounted import MountedFile

#: Below the logger that vLLM sets up, so that it is heard.
logger: Final = logging.getLogger("vllm.autellix.keys")


class InvalidAuthSettings(ValueError):
    """The environment does not say how to guard the engine; the message names the variable, never its value."""


class EngineKeys(Protocol):
    """What the guard compares with."""

    def accept(self, presented: bytes) -> bool:
        """Whether one of the keys was presented."""
        ...


class FixedKeys:
    """Keys that do not change. Only their digests are kept."""

    def __init__(self, keys: Iterable[str], source: str = handover.ENGINE_KEY) -> None:
        """``source`` names in messages where the keys come from. Raises InvalidAuthSettings."""
        found = list(keys)
        if not found or not all(key and all("!" <= character <= "~" for character in key) for key in found):
            raise InvalidAuthSettings(
                f"{source}: must be visible ASCII characters without blanks (a line end is a common cause)"
            )
        self._digests = [_digest(key.encode()) for key in found]

    def accept(self, presented: bytes) -> bool:
        """See EngineKeys."""
        digest = _digest(presented)
        # Digests have one length, and all are compared: the time tells nothing about the keys, nor which one fits.
        return any([hmac.compare_digest(each, digest) for each in self._digests])


class KeysFile:
    """The keys of a file, one a line, read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidAuthSettings if the file cannot be read or holds no usable keys."""
        self._file = MountedFile(path)
        self._keys = self._read()

    def accept(self, presented: bytes) -> bool:
        """See EngineKeys.

        It looks at the file each time, which takes microseconds: a key is known as soon as it is there, and no
        longer than it is there, in every process of the server.
        """
        if self._file.changed():
            try:
                self._keys = self._read()
            except InvalidAuthSettings as error:
                logger.error("The keys in force stay: %s", error)
            else:
                logger.info("The engine's keys were read again.")
        return self._keys.accept(presented)

    def _read(self) -> FixedKeys:
        source = f"{handover.ENGINE_KEY_FILE}: {self._file.path}"
        try:
            lines = self._file.path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidAuthSettings(f"{source}: cannot be read: {type(error).__name__}") from None
        keys = [line.strip() for line in lines if line.strip()]
        if not keys:
            raise InvalidAuthSettings(f"{source}: holds no key; one a line is expected")
        return FixedKeys(keys, source)


def engine_keys(env: Mapping[str, str]) -> EngineKeys | None:
    """The keys that the environment names; None if it names none. Raises InvalidAuthSettings."""
    key, file = (env.get(name) for name in (handover.ENGINE_KEY, handover.ENGINE_KEY_FILE))
    if key is not None and file is not None:
        raise InvalidAuthSettings(f"{handover.ENGINE_KEY}, {handover.ENGINE_KEY_FILE}: only one of the two may be set")
    if file is not None:
        return KeysFile(Path(file))
    return FixedKeys([key]) if key is not None else None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
