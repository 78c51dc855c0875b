"""The certificates between controllers and etcd."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.x509 import verification

from autellix_operator.tls.certificates import Pair, is_good, is_good_authority, issue, new_authority

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOSTS = ["demo-etcd.space.svc", "demo-etcd-0.demo-etcd.space.svc", "127.0.0.1"]


def loaded(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.encode())


def test_what_an_authority_issues_is_trusted_by_who_trusts_it() -> None:
    authority = new_authority("space/demo", NOON)
    server, client = issue(authority, "server", HOSTS, NOON), issue(authority, "client", (), NOON)
    trusted = verification.PolicyBuilder().store(verification.Store([loaded(authority)])).time(NOON + timedelta(days=1))
    for host in HOSTS[:2]:
        trusted.build_server_verifier(x509.DNSName(host)).verify(loaded(server), [])
    purposes = [
        loaded(pair).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value for pair in (server, client)
    ]
    names = [{each._name for each in usage} for usage in purposes]
    assert names == [{"clientAuth", "serverAuth"}, {"clientAuth"}]


def test_a_certificate_is_good_until_a_third_of_its_life_is_left() -> None:
    authority = new_authority("a", NOON)
    pair = issue(authority, "server", HOSTS, NOON)
    assert is_good(pair, authority, HOSTS, NOON + timedelta(days=240))
    assert not is_good(pair, authority, HOSTS, NOON + timedelta(days=245))
    assert is_good_authority(authority, NOON + timedelta(days=13 * 365))
    assert not is_good_authority(authority, NOON + timedelta(days=14 * 365))


def test_a_certificate_of_another_authority_for_other_hosts_or_with_another_key_is_not_good() -> None:
    authority, other = new_authority("a", NOON), new_authority("a", NOON)
    pair, second = (issue(authority, "server", HOSTS, NOON) for _ in range(2))
    assert not is_good(pair, other, HOSTS, NOON)
    assert not is_good(pair, authority, HOSTS[:2], NOON)
    assert not is_good(Pair(pair.certificate, second.key), authority, HOSTS, NOON)
    assert not is_good(Pair("", ""), authority, HOSTS, NOON)
    assert not is_good(Pair(pair.certificate, "nonsense"), authority, HOSTS, NOON)
    assert not is_good_authority(pair, NOON)


def test_keys_and_serial_numbers_are_never_the_same_twice() -> None:
    authority = new_authority("a", NOON)
    first, second = (issue(authority, "client", (), NOON) for _ in range(2))
    assert first.key != second.key
    assert loaded(first).serial_number != loaded(second).serial_number
