"""A server of Kubernetes' external metrics, as the Prometheus adapter is one: what a HorizontalPodAutoscaler asks.

It is registered with the API server by an APIService that leads to loopback, so it serves a server without nodes.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.apiserver import Client

_VERSION = "external.metrics.k8s.io/v1beta1"
_ROOT = f"/apis/{_VERSION}"
_SERVICE = {"name": "external-metrics", "namespace": "default"}


class Figures:
    """The metrics that are served, by their names."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def set(self, name: str, value: int) -> None:
        """From now on the metric has this value."""
        self._values[name] = value

    def forget(self, name: str) -> None:
        """There is no such metric any more."""
        del self._values[name]

    def answer(self, path: str) -> dict[str, Any] | None:
        """What the API answers to a GET of a path; None: there is no such thing."""
        parts = path.partition("?")[0].removeprefix(_ROOT).strip("/").split("/")
        if parts == [""]:
            names = [
                {
                    "name": name,
                    "singularName": "",
                    "namespaced": True,
                    "kind": "ExternalMetricValueList",
                    "verbs": ["get"],
                }
                for name in self._values
            ]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _VERSION, "resources": names}
        if parts[0] != "namespaces" or parts[-1] not in self._values:
            return None
        value = {
            "metricName": parts[-1],
            "metricLabels": {},
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": str(self._values[parts[-1]]),
        }
        return {"kind": "ExternalMetricValueList", "apiVersion": _VERSION, "metadata": {}, "items": [value]}


@contextmanager
def external_metrics(admin: Client, folder: Path) -> Iterator[Figures]:
    """Serves external metrics on the API server of ``admin`` for as long as the context lasts."""
    figures = Figures()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(figures)) as server:
        server.socket = _with_tls(folder).wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with _registered(admin, server.server_address[1]):
                yield figures
        finally:
            server.shutdown()
            thread.join()


def _handler(figures: Figures) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = figures.answer(self.path)
            body = json.dumps(answer if answer is not None else {}).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """The API server asks every few seconds: nothing worth a line."""

    return Handler


@contextmanager
def _registered(admin: Client, port: int) -> Iterator[None]:
    services = "/api/v1/namespaces/default/services"
    registrations = "/apis/apiregistration.k8s.io/v1/apiservices"
    name = "v1beta1.external.metrics.k8s.io"
    spec = {"type": "ExternalName", "externalName": "localhost"}
    admin.request("POST", services, {"metadata": {"name": _SERVICE["name"]}, "spec": spec})
    registration = {
        "metadata": {"name": name},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "service": {**_SERVICE, "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    try:
        admin.request("POST", registrations, registration)
        yield
    finally:
        admin.request("DELETE", f"{registrations}/{name}")
        admin.request("DELETE", f"{services}/{_SERVICE['name']}")


def _with_tls(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "external-metrics")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = folder / "external-metrics.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
