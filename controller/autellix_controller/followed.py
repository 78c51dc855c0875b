"""A file that changes while we run, as a mounted Secret does: read at the start, and again when it is another one."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from autellix_controller.logs import fields
from autellix_wire.mounted import MountedFile

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class FollowedFile:
    """Gives a file's text to ``take``, now and whenever it changes.

    ``take`` raises ``refusal``, a ValueError whose message shows nothing secret, if it cannot use the text: what it
    took before stays in force then.
    """

    def __init__(self, path: Path, take: Callable[[str], None], refusal: type[ValueError], what: str) -> None:
        """``what`` names the content in logs. Raises ``refusal`` if the file cannot be read or used."""
        self._file, self._take, self._refusal, self.what = MountedFile(path), take, refusal, what
        self._read()

    def _read(self) -> None:
        try:
            text = self._file.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self._refusal(f"cannot be read: {type(error).__name__}") from None
        self._take(text)

    def reload_if_changed(self) -> bool:
        """Reads the file again if it changed; a bad one is logged and what is in force stays."""
        if not self._file.changed():
            return False
        try:
            self._read()
        except self._refusal as error:
            log.error(f"{self.what} not reloaded", extra=fields(file=str(self._file.path), reason=str(error)))
            return False
        log.info(f"{self.what} reloaded", extra=fields(file=str(self._file.path)))
        return True

    async def follow(self) -> None:
        """Looks at the file every two seconds, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.reload_if_changed()
