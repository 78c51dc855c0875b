"""What controllers show to the process table's etcd, and by what they trust it: as files, and the settings that name
them."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from autellix_operator.api.names import Cluster
from autellix_operator.api.process_table import Etcd
from autellix_operator.desired import pods

_FOLDER: Final = "/etc/autellix/table"
_PREFIX: Final = "AUTELLIX_CONTROLLER_TABLE_"


class _File(NamedTuple):
    """A file in the controller's container, and the setting that names it."""

    volume: str
    secret: str
    key: str
    name: str
    setting: str


def volumes(cluster: Cluster, etcd: Etcd) -> list[dict[str, Any]]:
    """A volume for each Secret."""
    found: dict[str, list[_File]] = {}
    for each in _files(cluster, etcd):
        found.setdefault(each.volume, []).append(each)
    return [
        pods.secret_volume(volume, files[0].secret, {each.key: each.name for each in files})
        for volume, files in found.items()
    ]


def mounts(cluster: Cluster, etcd: Etcd) -> list[dict[str, Any]]:
    """Where these are mounted."""
    names = dict.fromkeys(each.volume for each in _files(cluster, etcd))
    return [{"name": name, "mountPath": f"{_FOLDER}/{name}", "readOnly": True} for name in names]


def variables(cluster: Cluster, etcd: Etcd) -> list[dict[str, Any]]:
    """The settings."""
    found = [
        pods.literal(_PREFIX + each.setting, f"{_FOLDER}/{each.volume}/{each.name}") for each in _files(cluster, etcd)
    ]
    return [*found, *([pods.literal(f"{_PREFIX}USER", etcd.user)] if etcd.user else [])]


def _files(cluster: Cluster, etcd: Etcd) -> Iterable[_File]:
    if etcd.managed is not None:
        secret = cluster.table_client_secret
        yield _File("table-client", secret, "ca.crt", "ca.crt", "CA_FILE")
        yield from _certificate("table-client", secret)
    if etcd.tls is not None and (authority := etcd.tls.ca_secret_ref) is not None:
        yield _File("table-ca", authority.name, authority.key, "ca.crt", "CA_FILE")
    if etcd.tls is not None and (certificate := etcd.tls.certificate_secret_ref) is not None:
        yield from _certificate("table-client", certificate.name)
    if (password := etcd.password_secret_ref) is not None:
        yield _File("table-password", password.name, password.key, "password", "PASSWORD_FILE")


def _certificate(volume: str, secret: str) -> Iterable[_File]:
    yield _File(volume, secret, "tls.crt", "tls.crt", "CERTIFICATE_FILE")
    yield _File(volume, secret, "tls.key", "tls.key", "KEY_FILE")
