"""A certificate authority and what it issues, with the time passed in."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: The authority is for one cluster and is replaced on request only.
_AUTHORITY_LIFE: Final = timedelta(days=20 * 365)
_LIFE: Final = timedelta(days=365)
#: Clocks of nodes differ.
_BACKDATED: Final = timedelta(hours=1)
#: A certificate is renewed when less than this part of its life is left.
_RENEWED_AT: Final = 1 / 3


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: str
    key: str


def new_authority(name: str, now: datetime) -> Pair:
    """An authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, name: str, hosts: Sequence[str], now: datetime) -> Pair:
    """A certificate for a server that is reached by these hosts and is a client too; without hosts for a client
    only."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = _key(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = (
        _builder(_name(name), issuer.subject, key.public_key(), now, _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def is_good(pair: Pair, authority: Pair, hosts: Sequence[str], now: datetime) -> bool:
    """Whether a certificate may stay: its key fits, the authority has signed it, it is for these hosts, and much of
    its life is left."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
        if certificate.public_key() != _key(pair).public_key():
            return False
    except (ValueError, TypeError, InvalidSignature):
        return False
    return _hosts(certificate) == [str(each) for each in hosts] and _is_young(certificate, now)


def is_good_authority(pair: Pair, now: datetime) -> bool:
    """Whether an authority can issue certificates that live as long as they should."""
    return is_good(pair, pair, (), now)


def _is_young(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - now > (end - begin) * _RENEWED_AT


def _hosts(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in names]


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    begin = now.astimezone(UTC).replace(microsecond=0) - _BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + life)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of an elliptic curve")
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem).decode(), secret.decode())
