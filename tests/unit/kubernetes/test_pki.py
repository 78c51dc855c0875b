import json
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from onenode.layout import Layout
from onenode.pki import AUTHORITIES, CERTIFICATES, Certificate, kubeconfig, make_pki, openssl_configuration


def test_authorities_may_sign_and_others_may_not() -> None:
    for authority in AUTHORITIES:
        text = openssl_configuration(authority)
        assert "basicConstraints = critical,CA:TRUE" in text
        assert "keyUsage = critical,keyCertSign,cRLSign" in text
    for certificate in CERTIFICATES:
        text = openssl_configuration(certificate)
        assert "CA:FALSE" in text
        assert "authorityKeyIdentifier" in text


def test_a_subject_without_organization_has_none() -> None:
    assert "O = " not in openssl_configuration(Certificate("x", common_name="someone"))
    assert "O = system:masters" in openssl_configuration(Certificate("x", organization="system:masters"))


def test_a_kubeconfig_names_its_cluster_by_address() -> None:
    document = json.loads(kubeconfig(b"authority", b"certificate", b"key"))
    assert document["clusters"][0]["cluster"]["server"] == "https://172.30.0.2:6443"
    assert document["current-context"] == document["contexts"][0]["name"]


def test_openssl_makes_certificates_that_strict_checks_accept(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.fail("openssl is missing: apt-get install openssl")
    layout = Layout(tmp_path)
    layout.pki.mkdir()
    make_pki(layout)
    for certificate in CERTIFICATES:
        crt = layout.pki / f"{certificate.name}.crt"
        command = [
            "openssl",
            "verify",
            "-x509_strict",
            "-CAfile",
            f"{layout.pki}/{certificate.authority}.crt",
            str(crt),
        ]
        assert subprocess.run(command, capture_output=True, text=True).stdout == f"{crt}: OK\n"
    context = ssl.create_default_context(cafile=layout.pki / "ca.crt")
    context.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")
    assert layout.pki.stat().st_mode & 0o777 == 0o700
