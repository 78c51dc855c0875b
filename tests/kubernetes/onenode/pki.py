"""Keys, certificates and kubeconfigs of a lab, made by openssl.

The extensions are those that the strict checks of recent TLS libraries ask for: a critical key usage on authorities,
subject and authority key identifiers on all others.
"""

import base64
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from onenode.errors import OnenodeError
from onenode.layout import API_PORT, API_SERVICE_ADDRESS, CLUSTER_DOMAIN, NODE_ADDRESS, NODE_NAME, Layout

LIFETIME_DAYS = 30
CLUSTER_AUTHORITY = "ca"
FRONT_PROXY_AUTHORITY = "front-proxy-ca"
SERVICE_ACCOUNT_KEY = "sa"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate to make; with ``authority`` None, an authority. ``organization`` is a group in Kubernetes."""

    name: str
    authority: str | None = CLUSTER_AUTHORITY
    common_name: str = ""
    organization: str = ""
    alternative_names: tuple[str, ...] = ()
    kubeconfig: bool = False


AUTHORITIES = (
    Certificate(CLUSTER_AUTHORITY, None, "autellix-lab-ca"),
    Certificate(FRONT_PROXY_AUTHORITY, None, "autellix-lab-front-proxy-ca"),
)
CERTIFICATES = (
    Certificate(
        "apiserver",
        common_name="kube-apiserver",
        alternative_names=(
            "DNS:localhost",
            "DNS:kubernetes",
            "DNS:kubernetes.default",
            "DNS:kubernetes.default.svc",
            f"DNS:kubernetes.default.svc.{CLUSTER_DOMAIN}",
            "IP:127.0.0.1",
            f"IP:{NODE_ADDRESS}",
            f"IP:{API_SERVICE_ADDRESS}",
        ),
    ),
    Certificate("apiserver-kubelet", common_name="apiserver-kubelet", organization="system:masters"),
    Certificate("front-proxy", FRONT_PROXY_AUTHORITY, "front-proxy"),
    Certificate("kubelet-server", common_name=NODE_NAME, alternative_names=(f"DNS:{NODE_NAME}", f"IP:{NODE_ADDRESS}")),
    Certificate("admin", common_name="admin", organization="system:masters", kubeconfig=True),
    Certificate("controller-manager", common_name="system:kube-controller-manager", kubeconfig=True),
    Certificate("scheduler", common_name="system:kube-scheduler", kubeconfig=True),
    Certificate("kubelet", common_name=f"system:node:{NODE_NAME}", organization="system:nodes", kubeconfig=True),
    Certificate("kube-proxy", common_name="system:kube-proxy", kubeconfig=True),
    Certificate("coredns", common_name="system:coredns", kubeconfig=True),
    Certificate("policies", common_name="system:kube-network-policies", kubeconfig=True),
)


def openssl_configuration(certificate: Certificate) -> str:
    """The configuration file from which openssl makes one certificate."""
    subject = {"O": certificate.organization, "CN": certificate.common_name}
    if certificate.authority is None:
        extensions = {"basicConstraints": "critical,CA:TRUE", "keyUsage": "critical,keyCertSign,cRLSign"}
    else:
        extensions = {
            "basicConstraints": "critical,CA:FALSE",
            "keyUsage": "critical,digitalSignature",
            "extendedKeyUsage": "serverAuth,clientAuth",
            "authorityKeyIdentifier": "keyid",
        }
    extensions["subjectKeyIdentifier"] = "hash"
    if certificate.alternative_names:
        extensions["subjectAltName"] = ",".join(certificate.alternative_names)
    return "\n".join(
        [
            "[req]",
            "prompt = no",
            "distinguished_name = subject",
            "x509_extensions = extensions",
            "[subject]",
            *(f"{name} = {value}" for name, value in subject.items() if value),
            "[extensions]",
            *(f"{name} = {value}" for name, value in extensions.items()),
            "",
        ]
    )


def kubeconfig(authority: bytes, certificate: bytes, key: bytes) -> str:
    """A kubeconfig (as JSON, which is YAML too) for the user of a certificate."""

    def encoded(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    cluster = {"server": f"https://{NODE_ADDRESS}:{API_PORT}", "certificate-authority-data": encoded(authority)}
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }
    return json.dumps(document, indent=1)


def make_pki(layout: Layout) -> None:
    """Makes everything in ``layout.pki``. Raises OnenodeError when openssl fails."""
    layout.pki.chmod(0o700)
    with ThreadPoolExecutor() as workers:
        pair = workers.submit(_make_service_account_key, layout.pki)
        for batch in (AUTHORITIES, CERTIFICATES):
            list(workers.map(lambda certificate: make_certificate(layout.pki, certificate), batch))
        pair.result()
    authority = (layout.pki / f"{CLUSTER_AUTHORITY}.crt").read_bytes()
    for name in (certificate.name for certificate in CERTIFICATES if certificate.kubeconfig):
        pem = (layout.pki / f"{name}.crt").read_bytes()
        layout.kubeconfig(name).write_text(kubeconfig(authority, pem, (layout.pki / f"{name}.key").read_bytes()))


def make_certificate(folder: Path, certificate: Certificate) -> None:
    """Makes ``NAME.crt`` and ``NAME.key`` in the folder, which holds those of its authority. Raises OnenodeError."""
    name, authority = certificate.name, certificate.authority
    (folder / f"{name}.cnf").write_text(openssl_configuration(certificate))
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", f"{name}.key"]
    issuer = [] if authority is None else ["-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"]
    _openssl(
        folder,
        "req",
        "-x509",
        "-config",
        f"{name}.cnf",
        "-days",
        str(LIFETIME_DAYS),
        *key,
        *issuer,
        "-out",
        f"{name}.crt",
    )


def _make_service_account_key(folder: Path) -> None:
    name = SERVICE_ACCOUNT_KEY
    _openssl(folder, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")
    _openssl(folder, "pkey", "-in", f"{name}.key", "-pubout", "-out", f"{name}.pub")


def _openssl(folder: Path, *arguments: str) -> None:
    result = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        raise OnenodeError(f"openssl {arguments[0]} failed: {result.stderr.strip()}")
