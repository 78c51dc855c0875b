"""A file that changes while we run, as a mounted Secret does: read at the start, and again when it is another one."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from autellix_controller.logs import fields

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class FollowedFile:
    """Gives a file's text to ``take``, now and whenever it changes.

    ``take`` raises ``refusal``, a ValueError whose message shows nothing secret, if it cannot use the text: what it
    took before stays in force then.
    """

    def __init__(self, path: Path, take: Callable[[str], None], refusal: type[ValueError], what: str) -> None:
        """``what`` names the content in logs. Raises ``refusal`` if the file cannot be read or used."""
        self._path, self._take, self._refusal, self.what = path, take, refusal, what
        self._seen = self._stamp()
        self._read()

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            # Follows links: a mounted Secret changes by switching one.
            stat = os.stat(self._path)
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> None:
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self._refusal(f"cannot be read: {type(error).__name__}") from None
        self._take(text)

    def reload_if_changed(self) -> bool:
        """Reads the file again if it changed; a bad one is logged and what is in force stays."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._read()
        except self._refusal as error:
            log.error(f"{self.what} not reloaded", extra=fields(file=str(self._path), reason=str(error)))
            return False
        log.info(f"{self.what} reloaded", extra=fields(file=str(self._path)))
        return True

    async def follow(self) -> None:
        """Looks at the file every two seconds, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.reload_if_changed()
