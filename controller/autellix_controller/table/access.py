"""How a controller shows etcd who it is, and knows etcd: certificates, user and password, all from files."""

import ssl
from pathlib import Path

import msgspec

from autellix_controller.table.urls import InvalidTable


class EtcdAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where the credentials are. Files may be replaced while the controller runs: see ``Members.failed``."""

    ca_file: Path | None = None
    """Authorities that etcd's certificate is checked with, PEM; without it those that gRPC brings along."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    """The client's own certificate chain and key, PEM. Both or none."""
    user: str | None = None
    password_file: Path | None = None
    """Both or none. One line."""

    def read(self) -> "Credentials":
        """What the files hold now. Raises InvalidTable, naming the setting and never its content."""
        ca = _read("table_ca_file", self.ca_file)
        if ca is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca.decode("ascii"))
            except (ssl.SSLError, ValueError):
                raise InvalidTable(f"table_ca_file: {self.ca_file} holds no certificate in PEM") from None
        certificate = _read("table_certificate_file", self.certificate_file)
        key = _read("table_key_file", self.key_file)
        if self.certificate_file is not None:
            try:
                # A key that is encrypted would ask for its password on the terminal.
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                    self.certificate_file, self.key_file, password=""
                )
            except (ssl.SSLError, OSError):
                raise InvalidTable(
                    f"table_certificate_file, table_key_file: {self.certificate_file} and {self.key_file} "
                    "are not a certificate and its key in PEM, the key not encrypted"
                ) from None
        password = _read("table_password_file", self.password_file)
        try:
            word = password.decode().rstrip("\r\n") if password is not None else ""
        except UnicodeDecodeError:
            raise InvalidTable(f"table_password_file: {self.password_file} is not UTF-8") from None
        if self.password_file is not None and not word:
            raise InvalidTable(f"table_password_file: {self.password_file} is empty")
        return Credentials(ca=ca, certificate=certificate, key=key, user=self.user or "", password=word)


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials themselves."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, ...)"


def _read(setting: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidTable(f"{setting}: cannot read {path}: {error.strerror}") from None
