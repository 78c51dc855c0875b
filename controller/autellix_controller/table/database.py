"""The SQLite file under the embedded table. Everything here blocks, and belongs to one thread at a time."""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

#: ``PRAGMA application_id``: says of a file that it is ours ("autx").
_APPLICATION: Final = 0x61757478
#: ``PRAGMA user_version``: how the file is laid out. Entries have a schema version of their own.
_LAYOUT: Final = 1
_BUSY_SECONDS: Final = 1.0


class DatabaseUnusable(Exception):
    """The file cannot serve as a process table; the message says why."""


class Database:
    """Programs by id, each as the bytes of its entry. One process at a time has it.

    Every write is one transaction in a write-ahead log. What was written survives the death of the process whatever
    it was doing; when the machine loses its power the last writes may be lost, and never a part of one.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, made if there is none. Raises DatabaseUnusable."""
        self._lock = _locked(path)
        try:
            _touch(path)
            self._connection = _connected(path, f"{path.as_uri()}?mode=rw")
            try:
                self._prepare(path)
            except BaseException:
                self._connection.close()
                raise
        except BaseException:
            os.close(self._lock)
            raise

    def _prepare(self, path: Path) -> None:
        try:
            if not _is_ours(self._connection, path):
                self._connection.executescript(
                    f"""
                    PRAGMA journal_mode = WAL;
                    BEGIN;
                    CREATE TABLE programs (id TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID;
                    PRAGMA application_id = {_APPLICATION};
                    PRAGMA user_version = {_LAYOUT};
                    COMMIT;
                    """
                )
            self._connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            raise DatabaseUnusable(f"{path}: {error}") from None

    def load(self) -> list[tuple[str, bytes]]:
        """All programs. Raises sqlite3.Error."""
        return self._connection.execute("SELECT id, entry FROM programs").fetchall()

    def write(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        """Puts entries, and deletes those that are None, all or nothing. Raises sqlite3.Error."""
        puts, deletes = [], []
        for program, entry in changes:
            if entry is None:
                deletes.append((program,))
            else:
                puts.append((program, entry))
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO programs (id, entry) VALUES (?, ?)", puts)
            self._connection.executemany("DELETE FROM programs WHERE id = ?", deletes)

    def close(self) -> None:
        """Closes the file, and leaves it to others."""
        self._connection.close()
        os.close(self._lock)


def read(path: Path) -> Sequence[tuple[str, bytes]]:
    """All programs of a file that may be in use. Raises DatabaseUnusable."""
    try:
        with closing(_connected(path, f"{path.as_uri()}?mode=ro")) as connection:
            if not _is_ours(connection, path):
                raise DatabaseUnusable(f"{path}: holds no process table")
            return connection.execute("SELECT id, entry FROM programs ORDER BY id").fetchall()
    except sqlite3.Error as error:
        raise DatabaseUnusable(f"{path}: {error}") from None


def _connected(path: Path, uri: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise DatabaseUnusable(f"{path}: {error}") from None


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds a table; False if it is empty. Raises DatabaseUnusable or sqlite3.Error."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    if application == _APPLICATION:
        if layout > _LAYOUT:
            raise DatabaseUnusable(f"{path}: was written by a newer version (layout {layout}, known is {_LAYOUT})")
        return True
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application or tables:
        raise DatabaseUnusable(f"{path}: is another program's database")
    return False


def _locked(path: Path) -> int:
    """A lock on a file beside the database, held until its descriptor is closed or the process ends."""
    try:
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DatabaseUnusable(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DatabaseUnusable(f"{path}: is in use by another process") from None
    return descriptor


def _touch(path: Path) -> None:
    """Makes the file if there is none. It names sessions and owners: nobody else needs to read them."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DatabaseUnusable(f"{path}: {error.strerror}") from None
