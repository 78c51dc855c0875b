"""The table in an etcd that asks for TLS, client certificates, and users with passwords."""

import base64
import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from autellix_controller.table import EtcdAccess, InvalidTable, open_table, read_programs
from autellix_controller.table.interface import TableUnavailable
from onenode.pki import Certificate, make_certificate
from support.etcd import Etcd, running_etcd
from support.table_contract import OWNER, opened
from support.tables import EtcdWorld, record, until

PASSWORD = "correct horse"
NEW_PASSWORD = "staple battery"
ADMINISTRATOR = "battery staple"
TIMEOUT_SECONDS = 600.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    names = ("DNS:localhost", "IP:127.0.0.1")
    for certificate in (
        Certificate("ca", None, "tests"),
        Certificate("strangers", None, "strangers"),
        # Certificates name no user: those that sign in do.
        Certificate("etcd", "ca", organization="tests", alternative_names=names),
        Certificate("client", "ca", organization="tests"),
        Certificate("stranger", "strangers", organization="tests"),
    ):
        make_certificate(folder, certificate)
    return folder


@pytest.fixture(scope="module")
def secure_etcd(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd with TLS, and a user ``autellix`` who may do everything under ``/autellix/``, and nothing else."""
    with running_etcd(tmp_path_factory.mktemp("secure-etcd"), tls=certificates) as etcd:
        etcd.call("/v3/auth/user/add", {"name": "root", "password": ADMINISTRATOR})
        etcd.call("/v3/auth/role/add", {"name": "root"})
        etcd.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("/v3/auth/role/add", {"name": "tables"})
        keys = {"key": base64.b64encode(b"/autellix/").decode(), "range_end": base64.b64encode(b"/autellix0").decode()}
        etcd.call("/v3/auth/role/grant", {"name": "tables", "perm": {"permType": "READWRITE", **keys}})
        etcd.call("/v3/auth/user/add", {"name": "autellix", "password": PASSWORD})
        etcd.call("/v3/auth/user/grant", {"user": "autellix", "role": "tables"})
        etcd.call("/v3/auth/enable", {})
        sign_in(etcd)
        yield etcd


def sign_in(etcd: Etcd) -> None:
    """As administrator, for what tests ask themselves."""
    etcd.token = ""
    etcd.token = str(etcd.call("/v3/auth/authenticate", {"name": "root", "password": ADMINISTRATOR})["token"])


@pytest.fixture
def access(certificates: Path, tmp_path: Path) -> EtcdAccess:
    """Good credentials in files of this test's own."""
    for name in ("ca.crt", "client.crt", "client.key"):
        shutil.copy(certificates / name, tmp_path / name)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return EtcdAccess(
        ca_file=tmp_path / "ca.crt",
        certificate_file=tmp_path / "client.crt",
        key_file=tmp_path / "client.key",
        user="autellix",
        password_file=tmp_path / "password",
    )


@pytest.fixture
async def world(secure_etcd: Etcd, access: EtcdAccess) -> AsyncIterator[EtcdWorld]:
    world = EtcdWorld(secure_etcd, TIMEOUT_SECONDS, access=access)
    yield world
    await world.end()


async def test_everything_works_with_certificates_and_a_password_that_nobody_sees(
    world: EtcdWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        a, b = await world.replica("a"), await world.replica("b")
        entry = await opened(world, a)
        await a.pin(entry.id, "engine-0", expected=None)
        a.apply(record(entry, calls=3), world.now_ms())
        await world.agree()
        assert b.get(entry.id) == a.get(entry.id)
        assert await b.end(entry.id)
        await until(lambda: a.live_replicas() == {"a", "b"}, "both are registered")
        (read,) = await read_programs(world.etcd.url, world.prefix, world.access)
        assert read.state == "ended"
    assert PASSWORD not in caplog.text + repr(world.access.read())


async def test_a_token_that_etcd_forgot_is_replaced(world: EtcdWorld, secure_etcd: Etcd) -> None:
    table = await world.replica("a")
    entry = await opened(world, table)
    secure_etcd.restart()  # tokens are kept in memory
    sign_in(secure_etcd)
    table.apply(record(entry, calls=2), world.now_ms())
    await until(lambda: table.health().connected and not table.health().pending_updates, "it has signed in again")
    assert (await table.pin(entry.id, "engine-0", expected=None)).calls == 2
    await world.agree()


async def test_a_password_that_changes_is_read_again(
    world: EtcdWorld, secure_etcd: Etcd, access: EtcdAccess, caplog: pytest.LogCaptureFixture
) -> None:
    table = await world.replica("a")
    entry = await opened(world, table)
    assert access.password_file is not None
    try:
        with caplog.at_level(logging.DEBUG):
            secure_etcd.call("/v3/auth/user/changepw", {"name": "autellix", "password": NEW_PASSWORD})
            table.apply(record(entry, calls=2), world.now_ms())
            await until(lambda: "authentication failed" in table.health().cause, "it says that it cannot sign in")
            access.password_file.write_text(NEW_PASSWORD)
            await until(lambda: table.health().connected, "it has signed in with the new password")
            await table.flush()
        assert NEW_PASSWORD not in caplog.text
        assert PASSWORD not in caplog.text
    finally:
        secure_etcd.call("/v3/auth/user/changepw", {"name": "autellix", "password": PASSWORD})
        access.password_file.write_text(PASSWORD)
    await until(lambda: table.health().connected, "and back")


async def test_certificates_that_are_replaced_are_used(
    world: EtcdWorld, certificates: Path, access: EtcdAccess
) -> None:
    assert access.certificate_file is not None
    assert access.key_file is not None
    shutil.copy(certificates / "stranger.crt", access.certificate_file)
    shutil.copy(certificates / "stranger.key", access.key_file)
    table = world.unstarted("a")
    await table.start()
    await until(lambda: "UNAVAILABLE" in table.health().cause, "etcd refuses a stranger")
    assert not table.health().loaded
    shutil.copy(certificates / "client.crt", access.certificate_file)
    shutil.copy(certificates / "client.key", access.key_file)
    await until(lambda: table.health().connected, "etcd takes the new certificate")
    await opened(world, table)
    await table.flush()


async def test_a_user_without_the_right_is_told_so(secure_etcd: Etcd, access: EtcdAccess) -> None:
    world = EtcdWorld(secure_etcd, TIMEOUT_SECONDS, access=access)
    world.prefix = "/elsewhere/one"
    table = world.unstarted("a")
    await table.start()
    await until(lambda: "permission denied" in table.health().detail, "it says that it may not")
    assert "permission denied" in table.health().cause
    assert (await opened(world, table)).owner == OWNER
    await world.end()


async def test_an_etcd_of_another_authority_is_not_trusted(
    secure_etcd: Etcd, certificates: Path, access: EtcdAccess
) -> None:
    wary = msgspec.structs.replace(access, ca_file=certificates / "strangers.crt")
    with pytest.raises(TableUnavailable, match="UNAVAILABLE"):
        await read_programs(secure_etcd.url, "/autellix/n/c", wary)


@pytest.mark.parametrize(
    ("setting", "content"),
    [("ca_file", "no certificate"), ("certificate_file", "no certificate"), ("password_file", ""), ("key_file", None)],
)
async def test_credentials_that_cannot_be_used_are_named(access: EtcdAccess, setting: str, content: str | None) -> None:
    path = getattr(access, setting)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(InvalidTable, match=f"table_{setting}.*{path.name}"):
        open_table("etcds://127.0.0.1:1", "/autellix/n/c", "a", TIMEOUT_SECONDS, access=access)
