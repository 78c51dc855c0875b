"""Where things lie in etcd, and how an entry is written there."""

from typing import Final

import msgspec

from autellix_controller.table.entry import SCHEMA_VERSION, ProgramEntry

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ProgramEntry] = msgspec.json.Decoder(ProgramEntry)

_PROGRAMS: Final = "programs/"
_REPLICAS: Final = "replicas/"


class Layout:
    """Keys of one cluster's table."""

    def __init__(self, prefix: str) -> None:
        self.root: Final = f"{prefix}/".encode()
        self.programs: Final = f"{prefix}/{_PROGRAMS}".encode()
        self.history: Final = f"{prefix}/history".encode()
        """Holds a random name made with the first list: another name, or none, means that the store was wiped."""
        self._replicas: Final = f"{prefix}/{_REPLICAS}".encode()

    def program_key(self, program: str) -> bytes:
        """Key of a program's entry."""
        return self.programs + program.encode()

    def program_of(self, key: bytes) -> str | None:
        """The program whose entry lies under this key; None for other keys."""
        return _name(key, self.programs)

    def replica_key(self, replica: str) -> bytes:
        """Key under which a replica says that it is alive."""
        return self._replicas + replica.encode()

    def replica_of(self, key: bytes) -> str | None:
        """The replica that is registered under this key; None for other keys."""
        return _name(key, self._replicas)


def _name(key: bytes, folder: bytes) -> str | None:
    if not key.startswith(folder):
        return None
    return key[len(folder) :].decode(errors="replace")


def encode_program(entry: ProgramEntry) -> bytes:
    """The entry as etcd holds it."""
    return _encoder.encode(entry)


def decode_program(program: str, value: bytes) -> ProgramEntry | None:
    """The entry of that program; None if it is damaged, of a newer schema or of another program.

    Such a value is not ours to use or to overwrite.
    """
    try:
        entry = _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return entry if entry.schema <= SCHEMA_VERSION and entry.id == program else None
