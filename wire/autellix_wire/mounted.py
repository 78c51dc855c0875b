"""A file of a mounted Secret: Kubernetes replaces it in place when the Secret changes, and nobody tells its readers."""

import os
from pathlib import Path

_Stamp = tuple[int, int, int]


class MountedFile:
    """The file at ``path``, whether it is there or not. It counts as seen when this is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = self._stamp()

    def changed(self) -> bool:
        """Whether it is another one than when last asked, which takes microseconds. One that is gone is another one."""
        stamp = self._stamp()
        was, self._seen = self._seen, stamp
        return stamp != was

    def _stamp(self) -> _Stamp | None:
        try:
            # Follows links: a mounted Secret changes by switching one.
            stat = os.stat(self.path)
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
